package receipts

import (
	"errors"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// hashes are those of a tree at one size, as tlog.ProveRecord asks for them:
// what is above the tiles of leaves is made of their roots, which are in memory
// (an eighth of a byte a record), and what is below of leaves that are read.
type hashes struct {
	size   uint64
	tiles  []tlog.Hash                            // roots of its full tiles of leaves
	tail   []tlog.Hash                            // see frontier.tail
	leaves func(tile uint64) ([]tlog.Hash, error) // all that the tree has of it
	known  map[uint64][]tlog.Hash                 // leaves that were read
}

var errHashes = errors.New("a hash that the tree does not have")

// ReadHashes returns the hashes of complete subtrees. The indexes are those of
// tlog.StoredHashIndex.
func (h *hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		hash, err := h.subtree(level, uint64(n))
		if err != nil {
			return nil, err
		}
		list[i] = hash
	}
	return list, nil
}

// subtree returns the root of the leaves from n<<level to before (n+1)<<level.
func (h *hashes) subtree(level int, n uint64) (tlog.Hash, error) {
	if level >= tileHeight {
		level -= tileHeight
		if (n+1)<<level > uint64(len(h.tiles)) {
			return tlog.Hash{}, errHashes
		}
		row := h.tiles[n<<level : (n+1)<<level]
		if slices.Contains(row, tlog.Hash{}) { // of removed entries whose leaves are gone
			return tlog.Hash{}, errLeaves
		}
		return complete(row), nil
	}
	tile, first := n<<level>>tileHeight, n<<level&(tileWidth-1)
	leaves, err := h.leavesOf(tile)
	if err != nil {
		return tlog.Hash{}, err
	}
	if first+1<<level > uint64(len(leaves)) {
		return tlog.Hash{}, errHashes
	}
	return complete(leaves[first : first+1<<level]), nil
}

// leavesOf returns the leaves that the tree has of a tile. Nobody has vouched for them.
func (h *hashes) leavesOf(tile uint64) ([]tlog.Hash, error) {
	if leaves := h.known[tile]; leaves != nil {
		return leaves, nil
	}
	leaves, err := h.leaves(tile)
	if err != nil {
		return nil, err
	}
	if h.known == nil {
		h.known = make(map[uint64][]tlog.Hash)
	}
	h.known[tile] = leaves
	return leaves, nil
}

// vouch holds the leaves of a tile against what is in memory of the tree.
func (h *hashes) vouch(tile uint64) error {
	leaves, err := h.leavesOf(tile)
	if err != nil {
		return err
	}
	want := h.tail
	if tile < uint64(len(h.tiles)) {
		want = h.tiles[tile : tile+1]
	}
	var f frontier
	for _, leaf := range leaves {
		f.push(leaf)
	}
	if !slices.Equal(f.nodes, want) {
		return errLeaves
	}
	return nil
}

// complete is the root over a power of two of hashes.
func complete(row []tlog.Hash) tlog.Hash {
	var f frontier
	for _, h := range row {
		f.push(h)
	}
	return f.root()
}

// prove returns the audit path of the leaf at index. It is good for the root, or
// there is an error: nothing that was read is believed.
func (h *hashes) prove(index uint64, leaf, root tlog.Hash) (tlog.RecordProof, error) {
	if index >= h.size {
		return nil, errHashes
	}
	path, err := tlog.ProveRecord(int64(h.size), int64(index), h)
	if err != nil {
		return nil, err
	}
	if tlog.CheckRecord(path, int64(h.size), root, int64(index), leaf) != nil {
		return nil, errLeaves
	}
	return path, nil
}
