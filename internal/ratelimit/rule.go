package ratelimit

import (
	"sync/atomic"
	"time"
)

// MaxQuota is the most that a rule can allow in a window: what has at most 15
// digits, as an Integer of RFC 9651 has in the fields that agents are told in.
const MaxQuota = 999_999_999_999_999

// Rule is a limit over fixed windows of time: what the calls of one partition key
// count for together between two multiples of its window, in Unix time. What is
// said of a Ref holds of it too: the counts are those of the rule's name, of what
// it counts and of its window, not of the Rule.
type Rule struct {
	windows atomic.Pointer[windows]
	id      ruleID
	observe bool
	away    Policy // the default is to let pass
}

// OnStoreFailure says what holds for the rule while the store is away that replicas
// share, and returns r; by default calls pass. Call it before r is used.
func (r *Rule) OnStoreFailure(p Policy) *Rule {
	r.away = p
	return r
}

// ruleID is whose counts they are. What a rule counts is part of it, as so many
// bytes are not so many calls.
type ruleID struct {
	name, of string
	length   int64
}

// NewRule returns the rule of that name, which counts in windows of that length,
// at least a nanosecond and at most 36 years. of says what it counts: any text,
// and another one has it begin anew. A rule that only observes refuses nothing.
func NewRule(name, of string, window time.Duration, observe bool) *Rule {
	return &Rule{id: ruleID{name, of, min(maxWindow, max(1, int64(window)))}, observe: observe}
}

// Name is the rule's name.
func (r *Rule) Name() string { return r.id.name }

// Observes reports whether the rule refuses nothing.
func (r *Rule) Observes() bool { return r.observe }

// Window is how long a window lasts.
func (r *Rule) Window() time.Duration { return time.Duration(r.id.length) }

// Use is what one call means to one rule. Whoever asks fills in the first group,
// and Admit the rest; of a call that it did not ask the rule for, nothing. It
// belongs to one call, and must not be used by two goroutines at once.
type Use struct {
	Rule      *Rule
	Partition string
	// Count is what the call counts for, not negative. What counts for nothing is
	// let pass by a full window.
	Count int64
	// Max is what the partition key may have in a window, as far as this call goes:
	// the next may bring another. Negative refuses the call, whatever it counts for.
	Max int64

	windows *windows // nil until the rule is to be asked
	used    int64    // after the decision
	left    int64    // until the window ends
	asked   bool
	refused bool
	counted bool
	at      int64 // number of the window that it was counted in
}

// Refused reports whether the rule refused the call or, if it only observes, would
// have.
func (u *Use) Refused() bool { return u.refused }

// Reading is how the partition key stood after the decision. It is zero where the
// rule was not asked.
func (u *Use) Reading() Reading {
	if !u.asked {
		return Reading{}
	}
	quota := min(MaxQuota, max(0, u.Max))
	r := Reading{
		Kind: KindRule, Name: u.Rule.id.name, Quota: quota, Remaining: max(0, quota-u.used),
		Window: u.Rule.Window(),
	}
	if u.used > 0 {
		r.Next = time.Duration(u.left)
	}
	return r
}

// askLocked has the rule, whose counts are locked, decide.
func (u *Use) askLocked(v *Verdict, unix int64) {
	w := u.windows
	w.rollLocked(unix)
	u.Count, u.Max = min(MaxQuota+1, u.Count), min(MaxQuota, u.Max)
	u.counted = false
	u.asked, u.used, u.left = true, w.usedLocked(u.Partition), w.leftLocked(unix)
	u.refused = !fits(u.used, u.Count, u.Max)
	if u.refused && !u.Rule.observe {
		v.refuseByRule(u.Rule.id.name, time.Duration(u.left), !fits(0, u.Count, u.Max))
	}
}

// countLocked counts an admitted call. One that a rule would have refused, and that
// runs because the rule only observes, counts no more than one that it refuses: the
// rule goes on to show what it would do.
func (u *Use) countLocked() {
	if !u.refused && u.Count > 0 {
		u.used = u.windows.addLocked(u.Partition, u.Count)
		u.counted, u.at = true, u.windows.at
	}
}

// uncount takes back what a call has counted for that is not to run after all, unless
// another window has begun.
func (l *Local) uncount(uses []Use, now int64) {
	for i := range uses {
		u := &uses[i]
		u.windows.mu.Lock()
		u.windows.rollLocked(l.unix(now))
		if u.counted && u.at == u.windows.at {
			u.windows.addLocked(u.Partition, -u.Count)
		}
		u.counted = false
		u.readLocked(l.unix(now))
		u.windows.mu.Unlock()
	}
}

// readRules has the readings of uses be of now.
func (l *Local) readRules(uses []Use, now int64) {
	for i := range uses {
		u := &uses[i]
		u.windows.mu.Lock()
		u.windows.rollLocked(l.unix(now))
		u.readLocked(l.unix(now))
		u.windows.mu.Unlock()
	}
}

func (u *Use) readLocked(unix int64) {
	u.used, u.left = u.windows.usedLocked(u.Partition), u.windows.leftLocked(unix)
}

// findRules finds the counts that uses are of. That comes before any entry is
// locked, as the limiter's lock does.
func (l *Local) findRules(uses []Use) {
	for i := range uses {
		uses[i].windows = l.windows(uses[i].Rule)
	}
}

// askRules asks every rule, and keeps their counts locked, in one order for all
// calls.
func (l *Local) askRules(v *Verdict, uses []Use, now int64) {
	lockRules(uses)
	for i := range uses {
		uses[i].askLocked(v, l.unix(now))
	}
}

// closeRules counts the call, if it was admitted, and gives the counts up.
func closeRules(uses []Use, admitted bool) {
	for i := range uses {
		if admitted {
			uses[i].countLocked()
		}
		uses[i].windows.mu.Unlock()
	}
}

func lockRules(uses []Use) {
	sorted, last := true, 0
	for i := range uses {
		n := uses[i].windows.number
		sorted, last = sorted && n > last, n
	}
	if sorted { // as they are, but for rules that a change of the file brought or moved
		for i := range uses {
			uses[i].windows.mu.Lock()
		}
		return
	}
	last = 0
	for range uses {
		var next *windows
		for i := range uses {
			if w := uses[i].windows; w.number > last && (next == nil || w.number < next.number) {
				next = w
			}
		}
		next.mu.Lock()
		last = next.number
	}
}

// Count counts n more for the partition key that u is of, in the window of now,
// whether there is room for it or not: what is known only once it has flowed. It
// refuses nobody, but whoever comes next. Of a rule that was not asked it counts
// nothing.
func (l *Local) Count(u *Use, n, now int64) {
	w := u.windows
	if w == nil || n <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rollLocked(l.unix(now))
	w.addLocked(u.Partition, n)
}

// Counted reads how much a partition key has counted for in the window of now,
// and how long that lasts. It costs nothing and makes no entry.
func (l *Local) Counted(r *Rule, partition string, now int64) (used int64, left time.Duration) {
	w := l.windows(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	unix := l.unix(now)
	w.rollLocked(unix)
	return w.usedLocked(partition), time.Duration(w.leftLocked(unix))
}
