package identity

// WithChecksum is s and the checksum that a key of it would have.
func WithChecksum(s string) string {
	check := checksum(s)
	return s + string(check[:])
}
