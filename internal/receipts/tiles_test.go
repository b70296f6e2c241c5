package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"agentgw/internal/receipts"
)

// tileReader reads a tree's tiles as a client of any such log does.
type tileReader struct {
	l    *receipts.Log
	tree string
}

func (tileReader) Height() int { return 8 }

func (r tileReader) ReadTiles(tiles []tlog.Tile) (data [][]byte, err error) {
	for _, t := range tiles {
		d, err := r.l.Tile(r.tree, strings.TrimPrefix(t.Path(), "tile/8/"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Path(), err)
		}
		data = append(data, d)
	}
	return data, nil
}

func (tileReader) SaveTiles([]tlog.Tile, [][]byte) {}

// TestTiles: with the tiles of the log's tree and of a tenant's, and nothing else,
// any of their sizes is shown to have the root that RFC 6962 says; and every tile is
// the hashes that https://c2sp.org/tlog-tiles says.
func TestTiles(t *testing.T) {
	const mine, others = 700, 300
	dir := t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) { receipts.SetNoSync(o); receipts.SetSegmentSize(o, 40_000) })
	for i := range mine {
		mustAppend(t, l, of("tenant:acme", fmt.Sprint("m-", i)))
		if i < others {
			mustAppend(t, l, of("tenant:b", fmt.Sprint("o-", i)))
		}
	}
	h := historyOf(t, dir, l.VerifierKey())
	id := func(tenant string) string { return h.origin(tenant)[len(h.log)+len("/t/"):] }
	for tree, leaves := range map[string][][32]byte{"": h.all, id("tenant:acme"): h.leaves["tenant:acme"], id("tenant:b"): h.leaves["tenant:b"]} {
		for _, size := range []int{1, 2, 255, 256, 257, len(leaves) - 1, len(leaves)} {
			root := treeHash(leaves[:size])
			reader := tlog.TileHashReader(tlog.Tree{N: int64(size), Hash: root}, tileReader{l, tree})
			if got, err := tlog.TreeHash(int64(size), reader); err != nil || got != root {
				t.Errorf("tree %q at %d: %v %v", tree, size, got, err)
			}
		}
		tile, err := l.Tile(tree, "0/001.p/7")
		if err != nil || !bytes.Equal(tile, slices.Concat(flat(leaves[256:263])...)) {
			t.Errorf("tree %q: a tile of leaves: %v", tree, err)
		}
		root := treeHash(leaves[:256])
		if tile, err := l.Tile(tree, "1/000.p/1"); err != nil || !bytes.Equal(tile, root[:]) {
			t.Errorf("tree %q: a tile of roots: %v", tree, err)
		}
	}
	for _, path := range []string{"", "0", "0/", "0/4", "0/004", "0/000.p/256", "0/000.p/0", "0/003.p/250", "1/000", "1/000.p/5", "7/000.p/1", "8/000", "63/000", "64/000", "-1/000",
		"data/000", "entries/000", "0/000/../000", "0/x001/000", "0/000.p/07", "00/000", "0/x999/x999/x999/x999/x999/x999/999", "0/%2e"} {
		if _, err := l.Tile("", path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", path, err)
		}
	}
	mine1 := id("tenant:acme")
	for _, tree := range []string{"x", strings.ToUpper(mine1), mine1 + "0", mine1[:31], strings.Repeat("0", 32), "../" + mine1} {
		if _, err := l.Tile(tree, "0/000"); !errors.Is(err, fs.ErrNotExist) && tree != "" {
			t.Errorf("tree %q: %v", tree, err)
		}
		if _, err := l.TreeCheckpoint(tree); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("tree %q: %v", tree, err)
		}
	}
	if signed, err := l.TreeCheckpoint(mine1); err != nil || !strings.HasPrefix(string(signed), h.head("tenant:acme")+"\n") {
		t.Errorf("%v: %s", err, signed)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "receipts", "*.leaves")); len(files) < 3 {
		t.Errorf("%d files of leaves: the trees were to span several", len(files))
	}
}

func flat(hashes [][32]byte) (list [][]byte) {
	for _, h := range hashes {
		list = append(list, h[:])
	}
	return list
}

// TestTilesOfLeavesAreChecked: a tile of leaves that were changed beside the segments
// while the log runs is not served, full or not, of the log's tree or a tenant's.
func TestTilesOfLeavesAreChecked(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) { receipts.SetNoSync(o) })
	const records = 300 // a tile and a part of one, behind the log's key
	for i := range records {
		mustAppend(t, l, of("tenant:acme", fmt.Sprint(i)))
	}
	if err := l.Close(); err != nil { // so that no leaf is in memory any more
		t.Fatal(err)
	}
	l = openLog(t, dir, func(o *receipts.Options) { receipts.SetNoSync(o) })
	h := historyOf(t, dir, l.VerifierKey())
	tree := h.origin("tenant:acme")[len(h.log)+len("/t/"):]
	serves := func(tree, path string) bool {
		t.Helper()
		data, err := l.Tile(tree, path)
		if (err == nil) != (data != nil) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("tree %q: %s: %v", tree, path, err)
		}
		return err == nil
	}
	for _, tree := range []string{"", tree} {
		if !serves(tree, "0/000") || !serves(tree, "0/001.p/9") {
			t.Fatal("a tile that is good is not served")
		}
	}
	file := strings.TrimSuffix(segmentFile(dir), ".jsonl") + ".leaves"
	good := read(t, file)
	for _, c := range []struct {
		entry int
		bad   string // of tree "": which tile is bad then
	}{{7, "0/000"}, {256, "0/001.p/9"}, {records, "0/001.p/9"}} {
		changed := bytes.Clone(good)
		changed[40*c.entry] ^= 1
		write(t, file, changed)
		for _, path := range []string{"0/000", "0/000.p/3", "0/001.p/9"} {
			if whole := serves("", path); whole == (path[:5] == c.bad[:5]) {
				t.Errorf("entry %d: %s: served %v", c.entry, path, whole)
			}
			// The tenant's leaf i is entry i+1.
			if whole := serves(tree, path); whole == (path[:5] == map[bool]string{true: "0/000", false: "0/001"}[c.entry-1 < 256]) {
				t.Errorf("entry %d of the tenant: %s: served %v", c.entry, path, whole)
			}
		}
		if !serves("", "1/000.p/1") {
			t.Error("a tile of roots is not served")
		}
		write(t, file, good)
	}
}
