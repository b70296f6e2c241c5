package receipts

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// What is counted and is in no record is kept in a file beside the segments, so
// that a process that ends before the log takes records again does not take it
// along: the next start writes the records. The file's blocks are had before there
// is no room, and are written over in their place (FORMAT.md, section 7).

const (
	unrecordedFile = "unrecorded"
	// noteSlot is what one state of the file takes at most. There are two, written
	// in turn: a crash may tear the newer, and the older is good then.
	noteSlot = 64 << 10
	// noteRest is kept of it for what did not find room with its tenant's name.
	noteRest = 2 << 10
	// noteEvery is how old the numbers in the file get while they grow.
	noteEvery = time.Second
)

// What a noted record will be.
const (
	notedGap     = "gap"
	notedRefused = "refused" // for want of a receipt: a summary
	notedFlood   = "flood"   // the end of a summary that was begun
)

// noted is a record that the log is still to get, as far as it is known. The id is
// the record's: where it is in the log the note is old.
type noted struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind"`
	Tenant string    `json:"tenant,omitempty"`
	Reason string    `json:"reason,omitempty"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Count  uint64    `json:"count"`
	Exact  bool      `json:"exact,omitempty"` // nobody is counted there any more
}

// ending is what the record says of its count.
func (n *noted) ending() Ending {
	switch {
	case !n.Exact:
		return OutcomeUnknown
	case n.Kind == notedFlood:
		return Complete
	}
	return ""
}

// record is of attempts that had none.
func (n *noted) record() *Record {
	r := &Record{Kind: KindGap, ID: n.ID, Tenant: n.Tenant, Reason: n.Reason, From: n.From, To: n.To, Count: max(n.Count, 1), Ending: n.ending(), told: n}
	if n.Kind == notedRefused {
		r.Kind, r.Decision, r.Code, r.Status = KindSummary, Refused, "receipt_unavailable", 503
	}
	return r
}

// notebook is the file. It is for one goroutine at a time.
type notebook struct {
	file file // nil: there is none
	key  *signing
	had  int64  // bytes that it held
	turn uint64 // of the newest state
	last []byte // it
}

// readNotebook returns what the file below folder says, and changes nothing. heir is
// the key that is to take over from key; nil: none is.
func readNotebook(d disk, folder string, key, heir *signing) (*notebook, []noted, error) {
	b := &notebook{key: key, last: []byte("[]")}
	all, err := readFile(d, filepath.Join(folder, unrecordedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	b.had = int64(len(all))
	for at := 0; at < 2*noteSlot && at < len(all); at += noteSlot {
		for _, by := range []*signing{key, heir} {
			if by == nil {
				continue
			}
			if turn, text, ok := parseNote(by, all[at:min(at+noteSlot, len(all))]); ok && turn > b.turn {
				b.turn, b.last = turn, text
			}
		}
	}
	var list []noted
	if err := json.Unmarshal(b.last, &list); err != nil { // under our tag, so by another version
		return nil, nil, fmt.Errorf("%s: %w", unrecordedFile, err)
	}
	return b, list, nil
}

// open has the file's blocks on the disk.
func (b *notebook) open(d disk, folder string) error {
	f, err := d.open(filepath.Join(folder, unrecordedFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if b.had < 2*noteSlot {
		err := errors.Join(writeAll(f, make([]byte, 2*noteSlot-b.had), b.had), syncAll(f))
		if err = errors.Join(err, d.syncDir(folder)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	b.file = f
	return nil
}

// A state is a line: its turn, a tag as records have one, and the list.
func spellNote(key *signing, turn uint64, list []byte) []byte {
	tag := key.tag(list, turn)
	line := strconv.AppendUint(nil, turn, 10)
	line = base64.RawURLEncoding.AppendEncode(append(line, ' '), tag[:])
	return append(append(append(line, ' '), list...), '\n')
}

func parseNote(key *signing, slot []byte) (turn uint64, list []byte, ok bool) {
	line, _, whole := bytes.Cut(slot, []byte("\n"))
	fields := bytes.SplitN(line, []byte(" "), 3)
	if !whole || len(fields) != 3 {
		return 0, nil, false
	}
	turn, err := strconv.ParseUint(string(fields[0]), 10, 64)
	return turn, fields[2], err == nil && bytes.Equal(spellNote(key, turn, fields[2]), append(line, '\n'))
}

var errNoNotebook = errors.New("there is no such file")

// handOver has what the file says stand under the key that is about to take over,
// where it says anything.
func (b *notebook) handOver(d disk, folder string, heir *signing) error {
	if string(b.last) == "[]" {
		return nil
	}
	if err := b.open(d, folder); err != nil {
		return err
	}
	b.key = heir
	return errors.Join(b.put(b.last), b.close())
}

// write has the file say this, and nothing else, durably.
func (b *notebook) write(list []noted) error {
	text := fit(list)
	if bytes.Equal(text, b.last) {
		return nil
	}
	return b.put(text)
}

func (b *notebook) put(text []byte) error {
	if b.file == nil {
		return errNoNotebook
	}
	turn := b.turn + 1
	if err := writeAll(b.file, spellNote(b.key, turn, text), int64(turn%2)*noteSlot); err != nil {
		return err
	}
	if err := syncAll(b.file); err != nil {
		return err
	}
	b.turn, b.last = turn, text
	return nil
}

func (b *notebook) close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}

// fit spells as much of the list as there is room for. The numbers of gaps and
// refusals that are left over are added up without a tenant; of a summary that is,
// the next start knows no more than that it was begun.
func fit(list []noted) []byte {
	var kept []noted
	rest := map[string]noted{}
	room := noteSlot - noteRest
	for _, n := range list {
		text, err := json.Marshal(n)
		if err == nil && len(text) < room {
			kept, room = append(kept, n), room-len(text)-1
			continue
		}
		if n.Kind == notedFlood {
			continue
		}
		all, there := rest[n.Kind]
		if !there {
			all = noted{Kind: n.Kind, Reason: n.Reason, From: n.From, To: n.To, Exact: true}
		}
		all.ID, all.Count, all.Exact = n.ID, all.Count+n.Count, all.Exact && n.Exact
		if n.From.Before(all.From) {
			all.From = n.From
		}
		if n.To.After(all.To) {
			all.To = n.To
		}
		rest[n.Kind] = all
	}
	for _, kind := range []string{notedGap, notedRefused} {
		if n, there := rest[kind]; there {
			kept = append(kept, n)
		}
	}
	if kept == nil {
		return []byte("[]")
	}
	text, _ := json.Marshal(kept) // texts, numbers and times
	return text
}

// notes is how the file is kept while the log is open.
type notes struct {
	book     *notebook
	told     map[string]bool // while Open reads the log: the ids in the file, and whether they are in the log
	next     chan struct{}   // closed when what is noted now is in the file, or cannot be
	hopeless bool            // nobody waits for it any more: the disk does not take it
	warned   bool
	wake     chan struct{} // of capacity 1
	quit     chan struct{}
	stopped  chan struct{}
}

func (n *notes) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// notedLocked is what the file should say now; end where nothing is counted any more.
func (l *Log) notedLocked(end bool) []noted {
	list := slices.Clone(l.untold)
	for _, b := range []*batch{l.writing, l.filling} {
		if b != nil {
			list = append(list, b.told...)
		}
	}
	for of, m := range l.missing {
		kind := notedGap
		if of.refused {
			kind = notedRefused
		}
		if m.count > 0 {
			list = append(list, noted{ID: m.id, Kind: kind, Tenant: of.tenant, Reason: of.reason, From: m.from, To: m.to, Count: m.count, Exact: end})
		}
		if m.passing > 0 {
			list = append(list, noted{ID: m.passingID, Kind: kind, Tenant: of.tenant, Reason: of.reason, From: m.passedAt, To: m.passedAt, Count: m.passing})
		}
	}
	slices.SortFunc(list, func(a, b noted) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.ID, b.ID)) })
	return list
}

// noted are the summaries that have not ended, as they stand.
func (f *floods) noted(end bool) (list []noted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.unwritten {
		list = append(list, noted{ID: s.id, Kind: notedFlood, From: s.from, To: s.to, Count: s.count, Exact: end})
	}
	slices.SortFunc(list, func(a, b noted) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// keepNotes brings the file up to date when somebody asks for it, and each second
// while there is something to say. It is apart from the committer, which may be
// waiting for the disk.
func (l *Log) keepNotes() {
	defer close(l.notes.stopped)
	for {
		var again <-chan time.Time
		stop := func() bool { return true }
		if l.note() {
			timer := l.clock.NewTimer(noteEvery)
			again, stop = timer.Chan(), timer.Stop
		}
		select {
		case <-l.notes.wake:
		case <-again:
		case <-l.notes.quit:
			stop()
			return
		}
		stop()
	}
}

// note writes the file, and reports whether it has to be looked at again.
func (l *Log) note() bool {
	l.mu.Lock()
	list := l.notedLocked(false)
	next := l.notes.next
	l.notes.next = nil
	stopped := l.stalledLocked() != nil || l.failure != nil || l.contradicted != nil
	l.mu.Unlock()
	if stopped || len(list) > 0 {
		list = append(list, l.floods.noted(false)...)
	}
	err := l.notes.book.write(list)
	if err != nil && !l.notes.warned {
		l.logger.Error("how many attempts have no record cannot be noted on the disk; a process that is killed takes the number with it", "file", filepath.Join(l.folder, unrecordedFile), "error", err)
	}
	l.notes.warned = err != nil
	if next != nil {
		close(next)
	}
	return stopped || len(list) > 0
}

// lastNote is for the end: what is noted then is exact.
func (l *Log) lastNote() {
	close(l.notes.quit)
	<-l.notes.stopped
	l.mu.Lock()
	list := l.notedLocked(true)
	next := l.notes.next
	l.notes.next, l.notes.hopeless = nil, true // there is nobody left to wait for
	l.mu.Unlock()
	list = append(list, l.floods.noted(true)...)
	count := uint64(0) // those that are passing cannot pass any more, and are counted as well
	for _, n := range list {
		count += n.Count
	}
	err := l.notes.book.write(list)
	if next != nil {
		close(next)
	}
	switch {
	case err != nil:
		l.logger.Error("attempts have no record, and the log ends without saying so", "folder", l.folder, "attempts", count, "error", err)
	case count > 0:
		l.logger.Warn("attempts have no record; the next start will say how many", "folder", l.folder, "attempts", count)
	}
	_ = l.notes.book.close() // it is synced
}
