package receipts

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// leavesIn returns the first entries of the files of leaves in folder that begin
// before an entry, ascending.
func leavesIn(d disk, folder string, before uint64) (firsts []uint64, err error) {
	files, err := d.readDir(folder) // in the order of their names
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		digits, ok := strings.CutSuffix(f.Name(), leavesSuffix)
		first, err := strconv.ParseUint(digits, 10, 53)
		if ok && err == nil && len(digits) == segmentDigits && first < before {
			firsts = append(firsts, first)
		}
	}
	return firsts, nil
}

// recall reads the leaves of removed entries again, for the roots of the tiles
// that they make up, without which nothing is proven of what is left. visit, where
// set, is told of each and whose it is. All that it reads has to come to the trees
// that are known; where it does not, or is not there, these tiles stay unknown and
// it returns an error.
func (w *walker) recall(visit func(tenant string, leaf tlog.Hash)) error {
	p := w.pruned
	if p == nil {
		return nil
	}
	firsts, err := leavesIn(w.reader.disk, w.reader.folder, p.before)
	if err != nil {
		return err
	}
	files := leaves{disk: w.reader.disk, folder: w.reader.folder}
	r := &leafReader{disk: files.disk, path: files.path, firsts: firsts}
	defer r.close()
	all, byID, byLast := new(branch), make(map[treeID]*recalled), make(map[uint64]*recalled)
	for _, t := range p.tenants {
		byID[newTreeID(p.origin, t.tree[0].root)] = &recalled{name: t.name}
	}
	buf := make([]byte, 4096*leafSize)
	for index := uint64(0); index < p.before; {
		n, err := r.read(index, buf[:min(uint64(len(buf)), (p.before-index)*leafSize)])
		if err != nil {
			return err
		}
		for i := range n {
			entry := buf[i*leafSize:][:leafSize]
			leaf, before := tlog.Hash(entry[:tlog.HashSize]), binary.BigEndian.Uint64(entry[tlog.HashSize:])
			all.push(leaf, index)
			t := byLast[before]
			if before == 0 {
				t = byID[newTreeID(p.origin, leaf)] // its first, if it has a tenant
			}
			name := ""
			if t != nil {
				delete(byLast, before)
				t.push(leaf, index)
				byLast[index+1], name = t, t.name
			}
			if visit != nil {
				visit(name, leaf)
			}
			index++
		}
	}
	if f := p.all.frontier(); all.tree.root() != f.root() {
		return errLeaves
	}
	for _, t := range p.tenants {
		have := byID[newTreeID(p.origin, t.tree[0].root)]
		if f := t.tree.frontier(); have.tree.size != f.size || have.tree.root() != f.root() {
			return fmt.Errorf("%w: those of tenant %s", errLeaves, t.name)
		}
		copy(w.branches[t.name].tiles, have.tiles)
		copy(w.branches[t.name].ends, have.ends)
	}
	copy(w.tiles, all.tiles)
	return nil
}

type recalled struct {
	branch
	name string
}
