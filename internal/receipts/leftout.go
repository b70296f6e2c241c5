package receipts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// What an export does not show stands in it as the roots of complete subtrees,
// the largest that there are: the log of so many lines for a run of leaves,
// where one hash a leaf would make a selection of ten receipts from a million
// as large as a twentieth of them all, and an audit path each would repeat what
// the paths share.

const leftOutPrefix = `{"left_out":`

// subtree is the root over a power of two of leaves, which begin at a multiple of
// as many.
type subtree struct {
	first uint64
	level int // of 2^level leaves
	root  tlog.Hash

	// Of what is kept of removed entries: the one leaf is shown, a key record, and
	// the border behind it. See pruned.
	line, border []byte
}

func (s subtree) count() uint64 { return 1 << s.level }

// joins reports whether s and the subtree behind it are the halves of one.
func (s subtree) joins(next subtree) bool {
	return s.line == nil && next.line == nil && s.level == next.level && s.first+s.count() == next.first && s.first>>s.level&1 == 0
}

// alone reports whether s begins with the tree's first leaf, from whose hash the
// tree has its name: that leaf is never put together with others.
func (s subtree) alone() bool { return s.first == 0 }

func appendLeftOut(dst []byte, s subtree) []byte {
	dst = fmt.Appendf(dst, leftOutPrefix+`{"count":%d,"root":"`, s.count())
	dst = base64.StdEncoding.AppendEncode(dst, s.root[:])
	return append(dst, "\"}}\n"...)
}

var errLeftOut = errors.New("not a line for records that are left out, in its one spelling")

// parseLeftOut reads the line of the subtree that begins at leaf first.
func parseLeftOut(line []byte, first uint64) (subtree, error) {
	var l struct {
		LeftOut struct {
			Count uint64 `json:"count"`
			Root  string `json:"root"`
		} `json:"left_out"`
	}
	if json.Unmarshal(line, &l) != nil {
		return subtree{}, errLeftOut
	}
	root, err := tlog.ParseHash(l.LeftOut.Root)
	count := l.LeftOut.Count
	if err != nil || bits.OnesCount64(count) != 1 {
		return subtree{}, errLeftOut
	}
	s := subtree{first: first, level: bits.TrailingZeros64(count), root: root}
	if !rendersAs(line, appendLeftOut(make([]byte, 0, len(line)+1), s)) {
		return subtree{}, errLeftOut
	}
	if first%count != 0 || count > maxLeaves-first {
		return subtree{}, fmt.Errorf("%d records that are left out cannot stand behind %d", count, first)
	}
	return s, nil
}

// maxLeaves is the most that a tree may have.
const maxLeaves = 1<<53 - 1

// run gathers leaves in succession that are left out.
type run []subtree

func (r *run) add(s subtree) {
	list := *r
	for len(list) > 0 && list[len(list)-1].joins(s) && !list[len(list)-1].alone() {
		last := list[len(list)-1]
		s = subtree{first: last.first, level: last.level + 1, root: tlog.NodeHash(last.root, s.root)}
		list = list[:len(list)-1]
	}
	*r = append(list, s)
}

// appendTo writes the run's lines and empties it.
func (r *run) appendTo(dst *bytes.Buffer) {
	for _, s := range *r {
		dst.Write(appendLeftOut(nil, s))
	}
	*r = (*r)[:0]
}

// graft appends all leaves of a subtree that begins where f ends.
func (f *frontier) graft(s subtree) {
	root, top := s.root, len(f.nodes)
	for n := f.size >> s.level; n&1 == 1; n >>= 1 {
		top--
		root = tlog.NodeHash(f.nodes[top], root)
	}
	f.nodes = append(f.nodes[:top], root)
	f.size += s.count()
}
