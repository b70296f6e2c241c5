package receipts

import (
	"crypto/sha256"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// frontier is an RFC 6962 tree that only grows: the roots of its complete
// subtrees, the largest first, one per set bit of its size. That is all that
// appending and the root need, so a tree of a million leaves takes 20 hashes at most.
// The zero value is the empty tree. A copy shares its nodes: see clone.
type frontier struct {
	size  uint64
	nodes []tlog.Hash
}

// A tile is 256 hashes side by side (https://c2sp.org/tlog-tiles).
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// push appends a leaf by its hash. Where it is the last of 256 leaves, full is
// true and tile their root.
func (f *frontier) push(leaf tlog.Hash) (tile tlog.Hash, full bool) {
	level, top := 0, len(f.nodes)
	for n := f.size; n&1 == 1; n >>= 1 {
		top--
		leaf = tlog.NodeHash(f.nodes[top], leaf)
		if level++; level == tileHeight {
			tile, full = leaf, true
		}
	}
	f.nodes = append(f.nodes[:top], leaf)
	f.size++
	return tile, full
}

// root returns the tree's hash; that of the empty tree is SHA-256 of nothing.
func (f *frontier) root() tlog.Hash {
	if f.size == 0 {
		return sha256.Sum256(nil)
	}
	last := len(f.nodes) - 1
	root := f.nodes[last]
	for _, left := range slices.Backward(f.nodes[:last]) {
		root = tlog.NodeHash(left, root)
	}
	return root
}

// tail is what it has behind its last full tile.
func (f *frontier) tail() []tlog.Hash {
	return f.nodes[len(f.nodes)-bits.OnesCount64(f.size%tileWidth):]
}

// clone returns a tree that grows apart from f.
func (f *frontier) clone() frontier {
	return frontier{f.size, append(make([]tlog.Hash, 0, 64), f.nodes...)}
}
