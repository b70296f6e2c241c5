package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

type lineKind int

const (
	aHeader lineKind = iota
	aBatch
	aCheckpoint
	aRecord
)

// event is one line of a log that stands where it may stand.
type event struct {
	kind    lineKind
	at      Position
	segment uint64 // the first entry of the file
	line    []byte // good until the next step
	header  header
	batch   batchLine
	note    []byte     // of a checkpoint line
	forged  error      // see looked.forged
	by      uint32     // see looked.by
	key     officeKey  // that was in office when a checkpoint line was read: it, or for a border also the next, has to have signed it
	border  bool       // of a checkpoint line: it has two signatures, which hold
	claims  checkpoint // what the note says; the root has been compared
	index   uint64     // of a record
	leaf    tlog.Hash
	before  uint64  // see branch.push
	branch  *branch // of the record's tenant
	record  *Record
}

// walker reads a log line by line and checks all that can be checked without a
// key: spelling, places, counts, the tree's root at each checkpoint, the
// tenants' sequences, and what heads records say of their trees. Its memory is
// one frontier for the log and one for each tenant.
type walker struct {
	reader   *reader
	lines    lines // of the reader
	tree     frontier
	tiles    []tlog.Hash // the roots of its full tiles of leaves
	office   office
	branches map[string]*branch // by tenant
	byTree   map[treeID]*branch
	grown    grown
	origin   string
	pruned   *pruned // what the log begins behind; nil: its first entry
	prunedBy uint64  // the entry that vouches for it and 1; 0: none so far

	lastCheckpoint uint64   // the size that the last checkpoint line is for
	checkpointAt   Position // of that line

	held    uint64   // the size of the newest tree that something signed has met
	sinceAt Position // of the first record after it
	sinceID string
	loose   *Damage // that record, once one of a further batch stands behind it: see unsigned

	// accept, where set, has the last word on a record line before it counts, while
	// the key acceptsOf is in office.
	accept    func(line []byte, index uint64) bool
	acceptsOf string
	// believes has a checkpoint by the key in office believed against the entries
	// before it.
	believes bool
	// skimming, where set, reads of each record only what skim does, and holds
	// the lines that no checkpoint has spoken for yet. Whoever sets it has to
	// check those, and the last checkpoint's signature, and to read again
	// without it where anything is wrong: it cannot say what. See skim.
	skimming *uncovered

	batch     batchLine
	batchAt   Position
	left      uint64 // records that the batch still owes
	leftBytes int64
}

func newWalker(folder string) *walker {
	r := newReader(folder)
	return &walker{reader: r, lines: &oneByOne{reader: r}, branches: make(map[string]*branch), byTree: make(map[treeID]*branch)}
}

// skim has it read of records only what a start or a proof wants.
func (w *walker) skim() {
	w.skimming = new(uncovered)
	w.look(looker{skims: true}, 0)
}

// look says how it looks at lines: one by one, or so many at once, on all
// processors, until stop is called. The reader then has to be bound.
func (w *walker) look(how looker, ahead int) (stop func()) {
	if ahead == 0 {
		w.lines = &oneByOne{reader: w.reader, looker: how}
		return func() {}
	}
	a := newAhead(w.reader, how, ahead)
	w.lines = a
	return a.stop
}

// torn reports whether the log ends in the middle of something, after step has
// returned io.EOF.
func (w *walker) torn() bool { return w.left > 0 || len(w.reader.partial()) > 0 }

func (w *walker) damage(at Position, id, format string, args ...any) *Damage {
	return &Damage{Position: at, Index: w.tree.size, ID: id, What: fmt.Sprintf(format, args...)}
}

// suspect blames the entries after the last checkpoint that held: something that
// was signed, named by the arguments, is over others. A tree tells that much and
// no more, so that of several entries the first is named, and their range.
func (w *walker) suspect(signed string, args ...any) *Damage {
	signed = fmt.Sprintf(signed, args...)
	d := &Damage{Position: w.sinceAt, Index: w.held, ID: w.sinceID, What: "not what " + signed + " was signed over", signed: true}
	if last := w.tree.size - 1; last > d.Index {
		d.ID, d.What = "", fmt.Sprintf("one of the entries %d to %d is not what %s was signed over", d.Index, last, signed)
	}
	return d
}

// uncheckedFrom is from where on nothing shows that the bytes of the last segment,
// which begins with entry first, were ever synced: the last checkpoint line is
// written only once all before it are, and a segment once the one before it is.
func (w *walker) uncheckedFrom(first uint64) int64 {
	if w.checkpointAt.File != segmentName(first) {
		return 0
	}
	return w.checkpointAt.Offset
}

// hold notes that something signed has met the tree as it is. That its signature
// is good is the caller's to know: step looks at none.
func (w *walker) hold() { w.held, w.loose = w.tree.size, nil }

// unsigned returns the first entry of a tail that no writer leaves: it puts the
// checkpoint over all that it wrote before each batch, so that one batch at most
// is without. Whoever has no key can append what looks right, but sign nothing.
func (w *walker) unsigned() *Damage {
	if d := w.loose; d != nil {
		d.What = fmt.Sprintf("the first of %d entries in several batches under no signature; the gateway signs all before it writes on", w.tree.size-d.Index)
	}
	return w.loose
}

// step returns the next line: io.EOF at the end of what is written, *Damage, or
// an error of the file system. After a *Damage the walker is of no use.
func (w *walker) step() (event, error) {
	next, err := w.lines.next()
	line, at := next.line, next.at
	switch {
	case err == io.EOF && w.reader.empty() && w.reader.first != w.tree.size:
		return event{}, w.damage(w.reader.at(), "", "an empty segment that is to begin with entry %d, but %d entries stand before it", w.reader.first, w.tree.size)
	case err == io.EOF && len(w.reader.partial()) == 0:
		return event{}, err
	case w.office.closed && w.at(at, err).File == w.checkpointAt.File:
		d := w.damage(w.at(at, err), "", "something stands behind the checkpoint with which this segment's key has handed over")
		d.signed = true // nobody ever writes there
		return event{}, d
	case errors.Is(err, errNotTail), errors.Is(err, errLongLine):
		return event{}, w.damage(at, "", "%v", err)
	case err != nil:
		return event{}, err
	}
	e := event{at: at, segment: next.segment, line: line, record: next.record, leaf: next.leaf, forged: next.forged, by: next.by}
	switch {
	case next.begins && w.left > 0:
		err = w.damage(at, "", "the segment before ends in the middle of a batch")
	case next.begins:
		err = w.head(&e)
	case bytes.HasPrefix(line, []byte(`{"v":`)):
		err = w.recordLine(&e, next.wrong)
	case w.left > 0:
		err = w.damage(at, "", "the batch lacks %d of its records", w.left)
	case bytes.HasPrefix(line, []byte(batchPrefix)):
		err = w.batchLine(&e)
	case bytes.HasPrefix(line, []byte(checkpointPrefix)):
		err = w.checkpointLine(&e)
	default:
		err = w.damage(at, "", "not a line of a receipt log")
	}
	return e, err
}

func (w *walker) head(e *event) error {
	h, err := parseHeader(e.line)
	switch {
	case err != nil:
		d := w.damage(e.at, "", "%v", err)
		d.newer = errors.Is(err, errNewer)
		return d
	case segmentName(h.First) != e.at.File:
		return w.damage(e.at, "", "the header says that entry %d is first, the file's name does not", h.First)
	case h.First != w.tree.size:
		return w.damage(e.at, "", "the segment begins with entry %d, but %d entries stand before it", h.First, w.tree.size)
	case w.origin != "" && h.Log != w.origin:
		d := w.damage(e.at, "", "the segment is of another log, %s", h.Log)
		d.signed = true
		return d
	}
	if !w.office.header(h, e.at) {
		d := w.damage(e.at, "", "the header names another key than the one in office")
		d.signed = true
		return d
	}
	w.origin = h.Log
	e.kind, e.header = aHeader, h
	return nil
}

func (w *walker) batchLine(e *event) error {
	b, err := parseBatchLine(e.line)
	switch {
	case err != nil:
		return w.damage(e.at, "", "%v", err)
	case b.First != w.tree.size || b.Count == 0 || b.Bytes <= 0:
		return w.damage(e.at, "", "the batch says entries %d to %d in %d bytes", b.First, b.First+b.Count-1, b.Bytes)
	}
	w.batch, w.batchAt, w.left, w.leftBytes = b, e.at, b.Count, b.Bytes
	e.kind, e.batch = aBatch, b
	return nil
}

func (w *walker) checkpointLine(e *event) error {
	signed, err := parseCheckpointLine(e.line)
	if err != nil {
		return w.damage(e.at, "", "%v", err)
	}
	text, ok := noteText(signed)
	if !ok {
		return w.damage(e.at, "", "the checkpoint is not a signed note")
	}
	c, err := parseCheckpoint(text)
	switch {
	case err != nil:
		return w.damage(e.at, "", "%v", err)
	case c.Origin != w.origin:
		return w.damage(e.at, "", "the checkpoint is of another log, %s", c.Origin)
	case c.Size != w.tree.size:
		return w.damage(e.at, "", "a checkpoint of %d entries stands after %d", c.Size, w.tree.size)
	case c.Root != w.tree.root():
		d := w.damage(e.at, "", "the checkpoint has the root %s, the entries before it have %s", c.Root, w.tree.root())
		if w.believes {
			_, err := openSigned(signed, w.office.current().known)
			d.signed = err == nil
		}
		if d.signed && c.Size > w.held {
			return w.suspect("the checkpoint in line %d", e.at.Line)
		}
		return d
	}
	e.key = w.office.current()
	if e.border = isBorder(signed); e.border {
		if err := w.office.border(signed, c); err != nil {
			d := w.damage(e.at, "", "the checkpoint: %v", err)
			d.signed = true
			return d
		}
	}
	w.lastCheckpoint, w.checkpointAt = c.Size, e.at
	if w.skimming != nil {
		w.skimming.forget()
	}
	e.kind, e.note, e.claims = aCheckpoint, signed, c
	return nil
}

func (w *walker) recordLine(e *event, wrong error) error {
	if w.left == 0 {
		return w.damage(e.at, idOf(e.line), "a record that no batch announces")
	}
	if wrong == nil && w.skimming != nil {
		wrong = w.skimming.add(e.line)
	}
	if wrong != nil {
		d := w.damage(e.at, idOf(e.line), "%v", wrong)
		d.newer = w.checksTags() && w.accept(e.line, w.tree.size)
		return d
	}
	r := e.record
	if w.checksTags() && !w.accept(e.line, w.tree.size) {
		return w.damage(e.at, r.ID, "the record's tag is not by this log's key")
	}
	b := w.branches[r.Tenant]
	if b == nil {
		b = new(branch)
		w.branches[strings.Clone(r.Tenant)] = b // a record's texts are parts of its line
	}
	left, leftBytes := w.left-1, w.leftBytes-int64(len(e.line)+1)
	switch {
	case leftBytes < 0 || left == 0 && leftBytes != 0:
		return w.damage(e.at, r.ID, "the batch's records do not take the %d bytes that it says", w.batch.Bytes)
	case r.Seq != b.seq+1:
		return w.damage(e.at, r.ID, "record %d of tenant %q, after record %d", r.Seq, r.Tenant, b.seq)
	case r.Kind == KindHeads:
		if err := w.heads(e.at, r); err != nil {
			return err
		}
	}
	b.seq = r.Seq
	w.left, w.leftBytes = left, leftBytes
	if w.tree.size == w.held {
		w.sinceAt, w.sinceID = e.at, r.ID
	}
	if w.batch.First > w.held && w.loose == nil {
		w.loose = &Damage{Position: w.sinceAt, Index: w.held, ID: w.sinceID}
	}
	e.kind, e.index, e.branch = aRecord, w.tree.size, b
	w.office.record(r, e.index)
	if w.prunedBy == 0 && r.proves(w.pruned) {
		w.prunedBy = e.index + 1
	}
	if tile, full := w.tree.push(e.leaf); full {
		w.tiles = append(w.tiles, tile)
	}
	if r.Tenant == "" {
		return nil
	}
	if b.seq == 1 {
		w.byTree[b.name(w.origin, e.leaf)] = b
	}
	w.grown.note(b)
	e.before = b.push(e.leaf, e.index)
	return nil
}

// heads compares what a heads record says with the tenants' trees before it. One
// that this log's own key has written and that says something else is no torn
// write: two histories were signed.
func (w *walker) heads(at Position, r *Record) error {
	var d *Damage
	if n := r.Heads.Count; n == 0 || n > uint64(len(w.grown.waiting)) {
		d = w.damage(at, r.ID, "it has heads of %d tenants' trees, but %d have grown", n, len(w.grown.waiting))
	} else if have := w.grown.bind(int(n)); have.Root != r.Heads.Root {
		d = w.damage(at, r.ID, "its heads of %d tenants' trees have the root %s, the records before it give %s", n, r.Heads.Root, have.Root)
	} else {
		return nil
	}
	d.signed = w.checksTags()
	return d
}

// checksTags reports whether the next record's tag can be checked. Those of keys
// that have handed over cannot: the border after them speaks for the records.
func (w *walker) checksTags() bool {
	return w.accept != nil && (len(w.office.keys) == 0 || w.office.current().vkey == w.acceptsOf)
}

// at is where the next line stands, or what there is of it at the end.
func (w *walker) at(at Position, err error) Position {
	if err == io.EOF {
		return w.reader.at()
	}
	return at
}

// idOf finds a receipt's id in a line that cannot be parsed, to name it.
func idOf(line []byte) string {
	_, rest, ok := bytes.Cut(line[:min(len(line), 256)], []byte(`"id":"`))
	id, _, closed := bytes.Cut(rest, []byte(`"`))
	if !ok || !closed || bytes.IndexByte(id, '\\') >= 0 {
		return ""
	}
	return string(bytes.ToValidUTF8(id, nil))
}

// toEnd walks to the end of the log. It returns io.EOF, *Damage or another error.
func (w *walker) toEnd(visit func(event) error) error {
	for {
		e, err := w.step()
		if err != nil {
			return err
		}
		if err := visit(e); err != nil {
			return err
		}
	}
}
