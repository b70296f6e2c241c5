package receipts

import (
	"crypto/sha256"
	"encoding/hex"

	"golang.org/x/mod/sumdb/tlog"
)

// Each record of a tenant is a leaf of the log's tree and, with the same hash,
// of its tenant's, in order of its seq. With that a tenant can be shown that a
// record is there, and later that none is missing, without seeing an index, a
// size or a hash that is not its own.

// treeID names a tenant's tree to the outside. It is made of the hash of the
// tenant's first record, which is as good as random to all who do not have that
// record: so nobody can guess a tenant from it or link the trees of one tenant
// in two logs, and whoever reads the log can check it without any secret. A MAC
// of the tenant's name would hide as well and could not be checked.
type treeID [16]byte

const treeIDInfo = "agentgate tenant tree v1\n"

// treeInfix stands in the origin of a tenant's tree between the log's and the id.
const treeInfix = "/t/"

func newTreeID(origin string, first tlog.Hash) (id treeID) {
	b := make([]byte, 0, 128)
	b = append(append(append(b, treeIDInfo...), origin...), '\n')
	sum := sha256.Sum256(append(b, first[:]...))
	copy(id[:], sum[:])
	return id
}

// treeOrigin is the origin of a tenant's tree in the log of that origin.
func treeOrigin(origin string, id treeID) string {
	return origin + treeInfix + hex.EncodeToString(id[:])
}

// branch is what a log knows of one tenant: how many records it has, and its
// tree. Those who have no tenant are counted as one, and are leaves of no tree
// but the log's: they are of strangers, of whom none may see the others' number.
type branch struct {
	seq    uint64 // of the newest record
	origin string // of the tree; "" of those who have no tenant, and before the first record

	tree  frontier
	bound uint64      // its size when a heads record last told of it
	last  uint64      // its newest entry and 1
	tiles []tlog.Hash // the roots of its full tiles of leaves,
	ends  []uint64    // and the last entry of each and 1

	shown *snapshot // that was last signed; nil: none was
}

// push appends the tenant's next leaf, which is that entry of the log. It returns
// the tenant's entry before it and 1, or 0.
func (b *branch) push(leaf tlog.Hash, index uint64) (before uint64) {
	before, b.last = b.last, index+1
	if tile, full := b.tree.push(leaf); full {
		b.tiles, b.ends = append(b.tiles, tile), append(b.ends, b.last)
	}
	return before
}

// name gives the tree its origin, by the tenant's first record.
func (b *branch) name(log string, first tlog.Hash) treeID {
	id := newTreeID(log, first)
	b.origin = treeOrigin(log, id)
	return id
}

// head is what a checkpoint of the tree says.
func (b *branch) head() checkpoint {
	return checkpoint{b.origin, b.tree.size, b.tree.root()}
}
