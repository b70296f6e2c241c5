package receipts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// ErrUsage is the cause of Verify's error where what it was given is of no use:
// a verifier key or an anchor that is none.
var ErrUsage = errors.New("cannot be used")

var errKey = fmt.Errorf("the verifier key %w: want <name>+<hash>+<base64> as `agentgw receipts key` prints it", ErrUsage)

// errNotTheKey: something was signed, and not by the given key.
var errNotTheKey = errors.New("not signed by the given key")

// errAnotherLog: a header names another key than the given one, which has signed
// nothing in the log.
var errAnotherLog = errors.New("the log is not signed by the given key")

// Verify checks the log at path (see Folder) with nothing but the verifier key
// vkey and, where anchor is not nil, a checkpoint that was kept elsewhere.
// It walks the tree of each tenant as well as the log's, on all processors, and needs
// the memory for some megabytes of the log, for 65,536 ids, and for each tenant half a
// kilobyte or so, however large the log is. progress, where set, is told how many bytes of how many have been
// read, at the end that it is all. A log that does not hold is a Report and not an error: an error means
// that it could not be read, or (ErrUsage) that vkey or anchor cannot be.
//
// It works while a gateway writes: then entries not yet under a checkpoint are
// counted apart. Where the gateway removes entries that are being read, it begins
// again.
func Verify(path, vkey string, anchor []byte, progress func(done, total int64)) (*Report, error) {
	return verify(path, vkey, anchor, progress, pieceLines)
}

// verify has the lines looked at ahead, so many at once, or one by one where that
// is 0.
func verify(path, vkey string, anchor []byte, progress func(done, total int64), ahead int) (*Report, error) {
	for {
		v := &verification{sums: summing{}, report: &Report{TrustedKey: vkey, Kinds: map[string]uint64{}}, progress: progress, ahead: ahead}
		r, err := v.verify(path, vkey, anchor)
		if err == nil && v.fault == nil || v.folder == "" || !v.pruned.replaced(realDisk{}, v.folder) {
			return r, err
		}
	}
}

func (v *verification) verify(path, vkey string, anchor []byte) (*Report, error) {
	keys, err := newTreeKeys(vkey)
	if err != nil {
		return nil, errKey
	}
	v.origin, v.trusted = keys.log.Name(), newOfficeKey(vkey, keys.log.Name())
	folder, err := Folder(path)
	v.candidates = someKeys{v.trusted}
	if err == nil {
		removed, _ := readPruned(realDisk{}, folder)
		v.candidates = keysNamed(realDisk{}, folder, v.trusted, removed)
	}
	if anchor != nil {
		if done, err := v.readAnchor(anchor); done || err != nil {
			return v.report, err
		}
	}
	if err != nil {
		return nil, err
	}
	if anchor == nil && !holdsLog(folder) {
		return nil, fmt.Errorf("no receipt log in %s", path)
	}
	v.folder = folder
	if err := v.readCheckpointFile(folder); err != nil {
		return nil, err
	}
	if v.pruned, err = readPruned(realDisk{}, folder); errors.Is(err, errPruned) {
		v.blame(err) // and where the segments are to begin nobody knows
	} else if err != nil {
		return nil, err
	} else if err := v.walk(folder); err != nil {
		return nil, err
	}
	v.conclude()
	return v.report, nil
}

// holdsLog reports whether folder is one of a receipt log, perhaps emptied: it
// has the name of one or something that belongs into one. Any other folder was
// named by mistake.
func holdsLog(folder string) bool {
	if filepath.Base(folder) == logFolder {
		return true
	}
	if _, err := os.Stat(filepath.Join(folder, checkpointFile)); err == nil {
		return true
	}
	firsts, err := listSegments(folder)
	return err != nil || len(firsts) > 0 // an error is the reader's to tell
}

type verification struct {
	report     *Report
	trusted    officeKey
	candidates someKeys // which may have signed: the trusted key, and those that the log names
	origin     string
	progress   func(done, total int64)
	ahead      int

	anchor    *target
	published *target     // the checkpoint file
	folder    string      // "" before anything in it was read
	pruned    *pruned     // what is left of removed entries
	tenant    *treeTarget // an anchor that is of one tenant's tree

	fault     error // *Damage, errAnotherLog wrapped, or another reason why it does not hold
	lastTime  time.Time
	lastKind  Kind
	ids       closings
	sums      summing
	office    []officeKey // the key walk
	unsigned  *Damage     // see walker.unsigned
	prunedBy  uint64      // see walker.prunedBy
	unproven  error       // nothing speaks for what is left of removed entries
	cutShort  bool        // the walk ended in a torn tail
	total     int64
	readBytes int64
}

func (v *verification) walk(folder string) error {
	firsts, err := listSegments(folder)
	if err != nil {
		return err
	}
	w := newWalker(folder)
	defer w.reader.close()
	w.begin(v.pruned)
	w.believes = true
	firsts = slices.DeleteFunc(firsts, func(first uint64) bool { return first < w.reader.from })
	v.report.Segments, v.total = len(firsts), bytesIn(folder)
	if v.pruned != nil {
		v.meetPruned(w)
	}
	if err := w.reader.bound(); err != nil {
		return err
	}
	stop := w.look(looker{signed: v.candidates.logs()}, v.ahead)
	defer stop()
	err = w.toEnd(func(e event) error { return v.line(w, e) })
	if v.progress != nil {
		v.progress(v.total, v.total)
	}
	var damage *Damage
	stopped := false
	switch {
	case err == io.EOF:
		v.cutShort, v.report.Torn = w.torn(), int64(len(w.reader.partial()))
	case errors.As(err, &damage):
		if v.cutShort, err = v.tornTail(folder, w, damage); err != nil {
			return err
		}
		if v.cutShort {
			v.report.Torn = w.reader.until.size - damage.Offset
		} else {
			v.blame(damage)
			stopped = true
		}
	case errors.Is(err, errAnotherLog):
		v.fault = err // whatever else is wrong with it
		stopped = true
	default:
		return err
	}
	v.report.Size, v.report.Covered = w.tree.size, w.held
	v.unproven, v.prunedBy = w.vouched(w.held), w.prunedBy
	v.unsigned = w.unsigned()
	v.office = w.office.keys
	if size := w.tree.size; stopped {
		v.report.StoppedAt = &size
	}
	v.report.Root = w.tree.root().String()
	v.report.Tenants = len(w.branches)
	if w.branches[""] != nil {
		v.report.Tenants-- // what has no tenant is no tenant's
	}
	if v.report.First != nil {
		v.report.Last = &Instant{v.lastTime}
	}
	v.report.InFlight, v.report.Counting, v.report.Alone = v.ids.intents, v.ids.summaries, v.ids.alone
	v.report.Sealed = v.lastKind == KindSeal && w.held == w.tree.size && !stopped && !v.cutShort
	return nil
}

// blame keeps the first fault only.
func (v *verification) blame(err error) {
	if v.fault == nil {
		v.fault = err
	}
}

// tornTail reports whether what is wrong from the damage on may be a write that
// a crash has torn: any part of it may be missing, and of what was not written
// anything may stand there. That is so where no signature is over more entries
// than were read; the gateway's next start then cuts it.
func (v *verification) tornTail(folder string, w *walker, d *Damage) (bool, error) {
	last := w.reader.until.segment
	if d.signed || d.Index < w.tree.size || d.File != segmentName(last) ||
		d.Offset == 0 && (w.left > 0 || last != w.tree.size) || w.reader.until.size == 0 {
		return false, nil
	}
	for _, t := range []*target{v.published, v.anchor} {
		if t != nil && t.Size > w.tree.size {
			return false, nil
		}
	}
	// Whose a batch is that stands further on takes the writer's key to tell. A
	// writer signs all before it begins one, so its checkpoint tells too.
	synced, err := signedIn(filepath.Join(folder, d.File), d.Offset, w.tree.size, w.office.current().known)
	return !synced, err
}

// signedIn reports whether a checkpoint over more than size entries, signed by
// one of known, stands in a segment from an offset on.
func signedIn(path string, from int64, size uint64, known note.Verifiers) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return syncedAfter(f, from, size, known, func([]byte, uint64) bool { return false })
}

// line takes one line of the log into account.
func (v *verification) line(w *walker, e event) error {
	v.readBytes += int64(len(e.line)) + 1
	r := v.report
	switch e.kind {
	case aHeader:
		first := r.LogKey == ""
		if first {
			r.LogKey = e.header.VKey
		}
		if e.header.Log != v.origin || first && !w.office.has(r.TrustedKey) {
			return v.anotherKey(w, e)
		}
	case aBatch:
		r.Batches++
		if v.progress != nil {
			v.progress(v.readBytes, v.total)
		}
	case aCheckpoint:
		if e.forged != nil || e.key.trees == nil || e.by != e.key.trees.log.KeyHash() {
			_, e.forged = openStored(e.note, e.key.known) // by none that the log had named, or not by the one in office
		}
		if e.forged != nil && !e.border {
			return &Damage{Position: e.at, Index: w.tree.size, What: "the checkpoint's signature does not hold", signed: true}
		}
		r.Checkpoints++
		w.hold()
	case aRecord:
		return v.record(w, e)
	}
	return nil
}

// anotherKey says what a first header with another key means: another log, or, where
// the given key has signed anything in it, one that is to come to this key, by and
// by: nil. One of another name never does.
func (v *verification) anotherKey(w *walker, e event) error {
	signed := v.published != nil && v.published.by.vkey == v.trusted.vkey
	firsts, err := listSegments(w.reader.folder)
	for i := 0; err == nil && !signed && i < len(firsts); i++ {
		if firsts[i] < w.reader.from {
			continue
		}
		signed, err = signedIn(filepath.Join(w.reader.folder, segmentName(firsts[i])), 0, 0, v.trusted.known)
	}
	switch {
	case err != nil:
		return err
	case signed && e.header.Log == v.origin:
		return nil
	case signed:
		return &Damage{Position: e.at, Index: w.tree.size, What: "the header names another log", signed: true}
	}
	return fmt.Errorf("%w: %s: the header names another", errAnotherLog, e.at)
}

func (v *verification) record(w *walker, e event) error {
	r, rec := v.report, e.record
	r.Kinds[string(rec.Kind)]++
	v.lastKind = rec.Kind
	if r.First == nil {
		r.First = &Instant{rec.Time}
	} else if rec.Time.Before(v.lastTime) {
		r.Backwards++
	}
	v.lastTime = rec.Time
	switch {
	case rec.Kind == KindRecovery:
		r.Repaired++
	case rec.Kind == KindGap:
		r.Gaps++
		r.Attempts += rec.Count
		if rec.Ending == OutcomeUnknown {
			r.UncountedGaps++
		}
	case rec.Kind == KindSummary:
		v.sums.add(rec, &r.Summarised)
	case rec.Ending == OutcomeUnknown && rec.Kind == KindOutcome:
		r.Unknown++
	}
	if rec.Interval {
		r.Interval++
	}
	if what := v.ids.see(rec); what != "" {
		return &Damage{Position: e.at, Index: e.index, ID: rec.ID, What: what}
	}
	if e.index == 0 && (rec.Kind != KindKey || rec.VKey != r.LogKey) {
		return &Damage{Position: e.at, Index: e.index, ID: rec.ID, What: "the first entry has to be the record of the log's key"}
	}
	met := false
	for _, t := range []*target{v.published, v.anchor} {
		if t == nil || t.Size != w.tree.size {
			continue
		}
		if t.met = t.Root == w.tree.root(); !t.met {
			return w.suspect("%s", t.name)
		}
		if t == v.anchor {
			v.anchorEnds(rec)
		}
		met = true
	}
	if met {
		w.hold()
	}
	if t := v.tenant; t != nil && e.branch.origin == t.Origin {
		return v.inTree(t, e)
	}
	return nil
}

// meetPruned compares what is left of removed entries with what they have to
// meet. A checkpoint of fewer entries cannot be compared any more.
func (v *verification) meetPruned(w *walker) {
	v.report.Pruned = v.pruned.before
	for _, t := range []*target{v.published, v.anchor} {
		if t == nil || t.Size > w.tree.size {
			continue
		}
		if t.removed = t.Size < w.tree.size; t.removed {
			continue
		}
		if t.met = t.Root == w.tree.root(); !t.met {
			v.blame(fmt.Errorf("what is left of the %d removed entries is not what %s was signed over", t.Size, t.name))
		}
	}
	t := v.tenant
	if t == nil {
		return
	}
	for _, p := range v.pruned.tenants {
		b := w.branches[p.name]
		if b.origin != t.Origin || b.tree.size < t.Size {
			continue
		}
		v.report.TreeAnchor.Tenant = p.name
		if t.removed = t.Size < b.tree.size; t.removed {
			continue
		}
		if t.met = t.Root == b.tree.root(); !t.met {
			v.blame(fmt.Errorf("what is left of the %d removed records of tenant %s is not what the anchor was signed over", t.Size, p.name))
		}
	}
}

// anchorEnds notes that the anchor was met, and with what record it ends.
func (v *verification) anchorEnds(last *Record) {
	v.report.AnchorTime = &Instant{last.Time}
}

// inTree looks at the next record of the tenant that the anchor is of.
func (v *verification) inTree(t *treeTarget, e event) error {
	v.report.TreeAnchor.Tenant = e.record.Tenant
	if e.branch.tree.size != t.Size {
		return nil
	}
	if t.met = e.branch.tree.root() == t.Root; t.met {
		v.anchorEnds(e.record)
		return nil
	}
	return &Damage{Position: e.at, Index: e.index, ID: e.record.ID,
		What: fmt.Sprintf("one of the %d records of tenant %s up to this one is not what the anchor was signed over", t.Size, e.record.Tenant), signed: true}
}
