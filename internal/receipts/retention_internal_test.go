package receipts

// Names returns the names in a folder, in order.
func (d *SimDisk) Names(folder string) (names []string) {
	list, _ := (&SimDisk{store: d.store}).readDir(folder)
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}
