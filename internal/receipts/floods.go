package receipts

import (
	"errors"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// summaryLasts is how long refusals are counted into one summary: what a kill -9
// loses, of their number and of nothing else.
const summaryLasts = 10 * time.Second

// retrySummary is how long a summary waits that could not be written.
const retrySummary = time.Second

// How many summaries there are at a time, of strangers and of keys, before those
// who are new share one. Each is two records for every summaryLasts, so that
// strangers' add at most 300 MB a day.
const (
	strangersSummaries = 64
	keysSummaries      = 4096
)

// floods counts the refusals that are too many to be recorded one by one, each in
// the summary of those that are like it.
type floods struct {
	mu        sync.Mutex
	closing   bool
	strangers class
	keys      class
	unwritten map[*summary]struct{} // all whose end is not in the log
	writing   sync.WaitGroup        // their ends
}

// class is those whose refusals are counted together where there are too many
// sources to count each: strangers, so that these crowd out nobody, and the rest.
type class struct {
	budget
	most int
	open map[likeness]*summary
}

// likeness is what the refusals of one summary have in common.
type likeness struct {
	tenant, caller, key, addr, code, limit string
	status                                 int
}

// summary counts refusals. Its beginning is in the log before any of them is
// answered.
type summary struct {
	likeness
	class    *class
	id       string
	from, to time.Time
	count    uint64
	ending   bool // nobody is counted any more
	timer    clockwork.Timer

	opened chan struct{} // closed when entry and err are final
	entry  Entry         // of its beginning; zero with an error, of which ErrLate does not undo it
	err    error
}

func newFloods() *floods {
	return &floods{
		strangers: class{newBudget(strangersAllowance), strangersSummaries, make(map[likeness]*summary)},
		keys:      class{newBudget(keysAllowance), keysSummaries, make(map[likeness]*summary)},
		unwritten: make(map[*summary]struct{}),
	}
}

// Refuse is Append for the record of a refusal, as long as there are not too many:
// some 1,000 of one key in a minute, or of one source, where the record has no key;
// and of all sources together a few more. Beyond that it is counted, exactly, in a
// summary of refusals that are like it (tenant, key, code, limit, status): then r
// has the summary's id on return, and the Entry is that of the summary's
// beginning, which is on disk as well.
//
// The number of those that were counted is on disk ten seconds later, or when the
// log is closed. A process that is killed before loses it, and the summary then
// says so.
func (l *Log) Refuse(r *Record, source string) (Entry, error) {
	s, first := l.count(r, source)
	if s == nil {
		return l.Append(r)
	}
	if first {
		l.beginSummary(s)
	}
	<-s.opened
	switch {
	case s.err == nil:
		r.ID = s.id
		return s.entry, nil
	case first || errors.Is(s.err, ErrLate): // it is counted, and nobody can be told so
		return Entry{}, s.err
	}
	return l.Append(r) // which is no better off, most likely, but accounts for itself
}

// count finds the summary in which r is counted, and reports whether it is the
// first there. It is nil for a refusal with a record of its own.
func (l *Log) count(r *Record, source string) (s *summary, first bool) {
	now := l.clock.Now()
	f := l.floods
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return nil, false // Append knows what then
	}
	c := &f.keys
	caller, addr := r.Caller, ""
	if r.Key == "" { // who may call himself what he likes
		c, caller, addr = &f.strangers, "", source
	} else {
		source = r.Key
	}
	if c.take(source, now) {
		return nil, false
	}
	like := likeness{r.Tenant, caller, r.Key, addr, r.Code, r.Limit, r.Status}
	if c.open[like] == nil && len(c.open) >= c.most {
		like = likeness{code: r.Code, limit: r.Limit, status: r.Status}
	}
	if s = c.open[like]; s == nil {
		s, first = &summary{likeness: like, class: c, id: l.newID(), from: now, opened: make(chan struct{})}, true
		c.open[like] = s
		f.unwritten[s] = struct{}{}
	}
	s.count++
	if now.After(s.to) {
		s.to = now
	}
	return s, first
}

// beginSummary makes the beginning of s durable. It stands for the first refusal.
func (l *Log) beginSummary(s *summary) {
	begin := s.record(s.from, 1)
	s.entry, s.err = l.Append(begin)
	f := l.floods
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.lost():
		f.dropLocked(s)
	case s.ending: // the log is being closed
	case s.err != nil:
		f.endLocked(s)
		go l.writeSummary(s)
	default:
		s.timer = l.clock.AfterFunc(summaryLasts, func() { l.endSummary(s) })
	}
	close(s.opened)
}

// lost reports whether the log has not taken its beginning. One that was taken too
// late to be told of is ended at once: it stands for those who waited for it.
func (s *summary) lost() bool { return s.err != nil && !errors.Is(s.err, ErrLate) }

func (s *summary) record(to time.Time, count uint64) *Record {
	return &Record{
		Kind: KindSummary, ID: s.id, Tenant: s.tenant, Caller: s.caller, Key: s.key, ClientAddr: s.addr,
		Decision: Refused, Code: s.code, Limit: s.limit, Status: s.status,
		From: s.from, To: to, Count: count, Reason: ReasonFlood,
	}
}

// dropLocked has nobody be counted in s any more, and nobody write it.
func (f *floods) dropLocked(s *summary) {
	s.ending = true
	f.shutLocked(s)
	delete(f.unwritten, s)
}

func (f *floods) shutLocked(s *summary) {
	if s.class.open[s.likeness] == s {
		delete(s.class.open, s.likeness)
	}
}

// endSummary writes what s stands for, unless somebody else does.
func (l *Log) endSummary(s *summary) {
	f := l.floods
	f.mu.Lock()
	mine := !s.ending
	if mine {
		f.endLocked(s)
	}
	f.mu.Unlock()
	if mine {
		l.writeSummary(s)
	}
}

func (f *floods) endLocked(s *summary) {
	s.ending = true
	f.shutLocked(s)
	f.writing.Add(1)
}

// writeSummary makes the end of s durable. Where that fails it is tried again, for
// as long as the log is open: what is counted was answered.
func (l *Log) writeSummary(s *summary) {
	f := l.floods
	defer f.writing.Done()
	<-s.opened
	if s.lost() {
		return
	}
	end := s.record(s.to, s.count)
	end.Ending = Complete
	_, err := l.Append(end)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, ErrLate):
		delete(f.unwritten, s)
	case f.closing:
		l.logger.Error("the number of refusals that were counted is not in the log", "receipt", s.id, "code", s.code, "count", s.count, "error", err)
	default:
		s.ending = false
		s.timer = l.clock.AfterFunc(retrySummary, func() { l.endSummary(s) })
	}
}

// endFloods writes all that was counted. Refusals that come later are the log's
// to refuse.
func (l *Log) endFloods() {
	f := l.floods
	f.mu.Lock()
	f.closing = true
	for s := range f.unwritten {
		if s.timer != nil {
			s.timer.Stop()
		}
		if !s.ending {
			f.endLocked(s)
			go l.writeSummary(s)
		}
	}
	f.mu.Unlock()
	f.writing.Wait()
}
