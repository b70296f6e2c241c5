package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// A start reads the whole log. Most of it stands under a root that this key has
// signed, and so is what was once written, byte for byte, if the tree's hash is:
// then neither spelling nor tag has to be looked at again. skim takes from a
// record line just what the log has to know of the past.

// skim reads kind, id, sequence, tenant and key of a record line. ok is false where
// that takes more than looking: then the line has to be parsed. Of a line that
// ParseRecord accepts it says the same; of another it may say anything.
func skim(line []byte) (r Record, ok bool) {
	kind, rest, ok1 := textAfter(line, recordPrefix)
	id, rest, ok2 := textAfter(rest, `,"id":"`)
	_, rest, ok3 := textAfter(rest, `,"t":"`)
	rest, ok4 := bytes.CutPrefix(rest, []byte(`,"seq":`))
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return r, false
	}
	end := bytes.IndexByte(rest, ',')
	if end < 0 {
		return r, false
	}
	seq, err := strconv.ParseUint(string(rest[:end]), 10, 53)
	if err != nil {
		return r, false
	}
	tenant, rest, ok1 := textIfThere(rest[end:], `,"tenant":"`)
	_, rest, ok2 = textIfThere(rest, `,"caller":"`)
	key, _, ok3 := textIfThere(rest, `,"key":"`)
	if !ok1 || !ok2 || !ok3 {
		return r, false
	}
	r.Tenant, r.Key = string(tenant), string(key)
	r.Kind, r.ID, r.Seq = Kind(kind), string(id), seq
	// Of heads, of keys and of what was removed all is wanted, and of a summary whether it ends one.
	return r, r.Kind.Valid() && r.Kind != KindHeads && r.Kind != KindKey && r.Kind != KindPruned && r.Kind != KindSummary
}

// glanced are kind, id and time of a record line, where they are spelled as they are;
// the time as text, of which the earlier is the smaller.
type glanced struct {
	what, id, t []byte
	ok          bool
}

func glance(line []byte) (g glanced) {
	var ok1, ok2, ok3 bool
	g.what, line, ok1 = textAfter(line, recordPrefix)
	g.id, line, ok2 = textAfter(line, `,"id":"`)
	g.t, _, ok3 = textAfter(line, `,"t":"`)
	g.ok = ok1 && ok2 && ok3
	return g
}

// kind does not take memory for one that is listed or begins.
func (g glanced) kind() Kind {
	for _, k := range [...]Kind{KindIntent, KindOutcome, KindRefusal, KindSummary} {
		if string(g.what) == string(k) {
			return k
		}
	}
	return Kind(g.what)
}

// textAfter cuts a text off that stands after prefix and holds nothing escaped.
func textAfter(line []byte, prefix string) (text, rest []byte, ok bool) {
	line, ok = bytes.CutPrefix(line, []byte(prefix))
	end := bytes.IndexByte(line, '"')
	if !ok || end < 0 || bytes.IndexByte(line[:end], '\\') >= 0 {
		return nil, nil, false
	}
	return line[:end], line[end+1:], true
}

// textIfThere is textAfter for a member that may be left out.
func textIfThere(line []byte, prefix string) (text, rest []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte(prefix)) {
		return nil, line, true
	}
	return textAfter(line, prefix)
}

// maxUncovered bounds what is held of the records after the last checkpoint:
// as much as one batch may hold, and a batch has one behind it.
const maxUncovered = maxBatch * (maxRecord + 1)

var errUncovered = errors.New("more records than a batch holds without a checkpoint")

// uncovered holds the record lines since the last checkpoint, which nothing but
// their tags speaks for.
type uncovered struct{ lines []byte }

func (u *uncovered) add(line []byte) error {
	if len(u.lines)+len(line) > maxUncovered {
		return errUncovered
	}
	u.lines = append(append(u.lines, line...), '\n')
	return nil
}

func (u *uncovered) forget() { u.lines = u.lines[:0] }

// check reports the first that this key did not write, or that is not spelled
// as it writes.
func (u *uncovered) check(first uint64, accept func([]byte, uint64) bool) error {
	for line := range bytes.Lines(u.lines) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if _, err := ParseRecord(line); err != nil || !accept(line, first) {
			return fmt.Errorf("entry %d does not hold", first)
		}
		first++
	}
	return nil
}
