package receipts

import (
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"
)

// frontier is an RFC 6962 tree that only grows: the roots of its complete
// subtrees, one per set bit of its size. That is all that appending and the
// root need, so a log of any size costs 2 KiB of memory.
// The zero value is the empty tree.
type frontier struct {
	size  uint64
	nodes [64]tlog.Hash // nodes[i] counts only where bit i of size is set
}

// push appends a leaf by its hash.
func (f *frontier) push(leaf tlog.Hash) {
	level := 0
	for n := f.size; n&1 == 1; n >>= 1 {
		leaf = tlog.NodeHash(f.nodes[level], leaf)
		level++
	}
	f.nodes[level] = leaf
	f.size++
}

// root returns the tree's hash; that of the empty tree is SHA-256 of nothing.
func (f *frontier) root() tlog.Hash {
	if f.size == 0 {
		return sha256.Sum256(nil)
	}
	var root tlog.Hash
	first := true
	for level, n := 0, f.size; n > 0; level, n = level+1, n>>1 {
		switch {
		case n&1 == 0:
		case first:
			root, first = f.nodes[level], false
		default:
			root = tlog.NodeHash(f.nodes[level], root)
		}
	}
	return root
}
