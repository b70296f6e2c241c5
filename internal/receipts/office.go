package receipts

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/note"
)

// officeKey is one of a log's keys.
type officeKey struct {
	vkey   string
	trees  *treeKeys      // nil: vkey is no key of the log
	known  note.Verifiers // it alone, as the log's
	from   uint64         // the entries that its border covers; 0: it was the first
	border []byte         // that checkpoint
}

// newOfficeKey takes what the log of that origin says is its key.
func newOfficeKey(vkey, origin string) officeKey {
	k := officeKey{vkey: vkey, known: note.VerifierList()}
	if trees, err := newTreeKeys(vkey); err == nil && trees.log.Name() == origin {
		k.trees, k.known = trees, note.VerifierList(trees.log)
	}
	return k
}

// office is a log's key walk as far as it was read: its keys, one after the other.
// The last is in office.
//
// A key record alone hands over nothing, and neither does a second signature: a
// signature says which text it is of and not to whom the log is handed. Both keys
// sign the root over the record that names the new one.
type office struct {
	keys   []officeKey
	named  string   // by the last entry, a key record; "" after any other
	closed bool     // the last line was a border: only a segment may follow
	at     Position // of the last header
}

// current is the key in office; the zero officeKey, which has signed nothing,
// before the first header.
func (o *office) current() officeKey {
	if len(o.keys) == 0 {
		return officeKey{known: note.VerifierList()}
	}
	return o.keys[len(o.keys)-1]
}

// has reports whether the key is in the walk.
func (o *office) has(vkey string) bool {
	return slices.ContainsFunc(o.keys, func(k officeKey) bool { return k.vkey == vkey })
}

// header takes a segment's header; ok is false where it names another key.
func (o *office) header(h header, at Position) (ok bool) {
	if len(o.keys) == 0 {
		o.keys = []officeKey{newOfficeKey(h.VKey, h.Log)}
	}
	o.closed, o.at = false, at
	return o.current().vkey == h.VKey
}

// record takes the next entry.
func (o *office) record(r *Record, index uint64) {
	o.named = ""
	if r.Kind == KindKey && index > 0 {
		o.named = r.VKey
	}
}

// border takes a checkpoint with two signatures, whose root is right: the key that
// the last entry names is in office from here on. An error says why it is not.
func (o *office) border(signed []byte, c checkpoint) error {
	next := newOfficeKey(o.named, c.Origin)
	now := o.current()
	if next.trees == nil || now.trees == nil {
		return errors.New("it has two signatures, and the last entry does not name another key of this log")
	}
	for _, k := range o.keys {
		if k.trees.log.KeyHash() == next.trees.log.KeyHash() {
			return errors.New("it hands over to a key that was in office before")
		}
	}
	alone := signedAlone(signed)
	for i, k := range []officeKey{now, next} {
		if len(alone) != 2 {
			return errors.New("it has not exactly two signatures")
		}
		if _, err := openStored(alone[i], k.known); err != nil {
			return err
		}
	}
	next.from, next.border = c.Size, signed
	o.keys, o.named, o.closed = append(slices.Clip(o.keys), next), "", true
	return nil
}

// signedAlone returns a note with each of its signatures alone.
func signedAlone(signed []byte) (alone [][]byte) {
	text, ok := noteText(signed)
	if !ok {
		return nil
	}
	for line := range bytes.Lines(signed[len(text)+1:]) {
		alone = append(alone, append([]byte(text+"\n"), line...))
	}
	return alone
}

// isBorder reports whether a note has two signatures, whosever they are.
func isBorder(signed []byte) bool { return len(signedAlone(signed)) == 2 }

// openSigned is openStored, also of a border: one of its signatures by one of
// known is enough.
func openSigned(signed []byte, known note.Verifiers) (c checkpoint, err error) {
	if !isBorder(signed) {
		return openStored(signed, known)
	}
	for _, one := range signedAlone(signed) {
		if c, err = openStored(one, known); err == nil {
			return c, nil
		}
	}
	return c, err
}

// keysNamed returns the keys of a key's log that the log's headers name and what is
// left of removed entries tells of: what may have signed something, before it is
// known what has. What cannot be read names none; to say so is the walk's.
// The given key comes first.
func keysNamed(d disk, folder string, given officeKey, p *pruned) (list someKeys) {
	list = someKeys{given}
	add := func(vkey string) {
		k := newOfficeKey(vkey, given.trees.log.Name())
		if k.trees != nil && !slices.ContainsFunc(list, func(o officeKey) bool { return o.trees.log.KeyHash() == k.trees.log.KeyHash() }) {
			list = append(list, k)
		}
	}
	if p != nil {
		for _, k := range p.keys {
			add(k.vkey)
		}
	}
	firsts, _ := segmentsIn(d, folder)
	for _, first := range firsts {
		if vkey, ok := headerKey(d, filepath.Join(folder, segmentName(first))); ok {
			add(vkey)
		}
	}
	return list
}

// headerKey reads the key that a segment's header names.
func headerKey(d disk, path string) (vkey string, ok bool) {
	f, err := d.open(path, os.O_RDONLY, 0)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b := make([]byte, headerRoom)
	n, _ := f.ReadAt(b, 0)
	line, _, whole := bytes.Cut(b[:n], []byte("\n"))
	h, err := parseHeader(line)
	return h.VKey, whole && err == nil
}

// someKeys are those of a log of which any may have signed.
type someKeys []officeKey

// logs are the same keys as those of the log, and not of its tenants' trees.
func (s someKeys) logs() note.Verifiers {
	var list []note.Verifier
	for _, k := range s {
		list = append(list, k.trees.log)
	}
	return note.VerifierList(list...)
}
