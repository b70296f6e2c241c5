package receipts

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// TreeCheckpoint returns a signed checkpoint of a tenant's tree, by the id at the
// end of its origin. It covers durable records only, and is of at most a second
// before. The error is fs.ErrNotExist where there is no such tree.
func (l *Log) TreeCheckpoint(tree string) ([]byte, error) {
	b, err := l.branchOf(tree)
	if err != nil {
		return nil, err
	}
	s, reader, err := l.snapshot(b, 1)
	if err != nil {
		return nil, err
	}
	reader.close()
	return s.signed, nil
}

// Tile returns hashes of a tenant's tree, or of the log's where tree is "", by the
// path of https://c2sp.org/tlog-tiles below tile/: "0/x001/234", "1/000.p/7". There
// are tiles for every size that the tree has had. The error is fs.ErrNotExist for
// what is no such path and for what the tree does not have.
//
// They are made when they are asked for: of leaves from beside the segments and of
// the roots that are in memory. One of the second level or above takes some tens of
// milliseconds.
func (l *Log) Tile(tree, path string) ([]byte, error) {
	t, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s", tileHeight, path))
	if err != nil || t.L < 0 || t.L*tileHeight >= 64 {
		return nil, fs.ErrNotExist
	}
	h, reader, err := l.hashesOf(tree)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	// Counted from the tree's end: what was asked for may be beyond any number.
	rows := h.size >> (t.L * tileHeight)
	if n := uint64(t.N); n > rows/tileWidth || uint64(t.W) > rows-n*tileWidth {
		return nil, fs.ErrNotExist
	}
	if t.L == 0 { // what is above is in memory
		if err := h.vouch(uint64(t.N)); err != nil {
			return nil, err
		}
	}
	data := make([]byte, 0, t.W*tlog.HashSize)
	for i := range uint64(t.W) {
		hash, err := h.subtree(t.L*tileHeight, uint64(t.N)*tileWidth+i)
		if err != nil {
			return nil, err
		}
		data = append(data, hash[:]...)
	}
	return data, nil
}

// hashesOf returns a tree as it is now.
func (l *Log) hashesOf(tree string) (*hashes, *leafReader, error) {
	if tree != "" {
		b, err := l.branchOf(tree)
		if err != nil {
			return nil, nil, err
		}
		s, reader, err := l.snapshot(b, 1)
		if err != nil {
			return nil, nil, err
		}
		return s.hashes(reader), reader, nil
	}
	l.trees.Lock()
	defer l.trees.Unlock()
	reader := l.leaves.reader()
	size := l.tree.size
	return &hashes{size: size, tiles: l.tiles, tail: slices.Clone(l.tree.tail()), leaves: func(tile uint64) ([]tlog.Hash, error) {
		return reader.row(tile*tileWidth, min(size, (tile+1)*tileWidth))
	}}, reader, nil
}

// branchOf finds a tenant by the id of its tree.
func (l *Log) branchOf(tree string) (*branch, error) {
	var id treeID
	if len(tree) != 2*len(id) {
		return nil, fs.ErrNotExist
	}
	if _, err := hex.Decode(id[:], []byte(tree)); err != nil || hex.EncodeToString(id[:]) != tree {
		return nil, fs.ErrNotExist
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.byTree[id]; b != nil {
		return b, nil
	}
	return nil, fs.ErrNotExist
}
