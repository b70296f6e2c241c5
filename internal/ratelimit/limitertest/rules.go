package limitertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

var anything = ratelimit.NewService("s", 0)

func rule(name string, window time.Duration) *ratelimit.Rule {
	return ratelimit.NewRule(name, "requests", window, false)
}

func use(r *ratelimit.Rule, partition string, count, most int64) ratelimit.Use {
	return ratelimit.Use{Rule: r, Partition: partition, Count: count, Max: most}
}

// meet makes a call that meets nothing but these rules.
func (s Subject) meet(uses ...ratelimit.Use) ratelimit.Verdict {
	_, v := s.admit(ratelimit.Admission{Service: anything, Uses: uses})
	return v
}

func (s Subject) counted(r *ratelimit.Rule, partition string) int64 {
	used, _ := s.Counted(r, partition, s.Now())
	return used
}

// toWindow lets time pass until a window of that length begins.
func (s Subject) toWindow(length time.Duration) {
	s.Advance(length - time.Duration((s.Epoch+s.Now())%int64(length)))
}

// rulesCountExactly: a crowd gets what the rule allows in a window, and no more
// and no less, whatever each counts for.
func rulesCountExactly(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Hour)
	const crowd, most = 64, 100
	for _, each := range []int64{1, 7} {
		r := rule(fmt.Sprint("by ", each), time.Hour)
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range crowd {
			all.Go(func() {
				for range max(2, scaled(1000)) { // of all of them more than there is
					if s.meet(use(r, "p", each, most)).Outcome == ratelimit.Admitted {
						admitted.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := admitted.Load(); n != most/each || s.counted(r, "p") != n*each {
			t.Errorf("%d of %d each were admitted, counted as %d; want %d", n, each, s.counted(r, "p"), most/each)
		}
	}
}

// rulesAreAllOrNothing: whichever of three rules, the buckets and the slots
// refuses, nothing is counted by any.
func rulesAreAllOrNothing(t *testing.T, make Maker) {
	two := ratelimit.Limit{Interval: 3600 * second, Burst: 2}
	for full := range 6 {
		s := make(t)
		s.toWindow(time.Minute)
		rules := []*ratelimit.Rule{rule("a", time.Minute), rule("b", time.Minute), rule("c", time.Hour)}
		k, tenant, b := key("k", two), tenant("t", two, 1), bucket("k", "s", two)
		switch full {
		case 0, 1, 2:
			s.meet(use(rules[full], "p", 5, 5))
		case 3:
			s.take(tenant)
			s.take(tenant)
		case 4:
			s.take(b)
			s.take(b)
		case 5:
			if _, v := s.admit(ratelimit.Admission{Tenant: tenant, Service: anything}); v.Outcome != ratelimit.Admitted {
				t.Fatalf("%+v", v)
			}
		}
		left := func() (n [3]int64) {
			for i, r := range rules {
				n[i] = s.counted(r, "p")
			}
			return n
		}
		before, tokens := left(), [2]int64{s.left(tenant), s.left(b)}
		uses := []ratelimit.Use{use(rules[0], "p", 2, 5), use(rules[1], "p", 1, 5), use(rules[2], "p", 1, 5)}
		_, v := s.call(k, ratelimit.Admission{Tenant: tenant, Bucket: b, Service: anything, Uses: uses})
		if v.Outcome == ratelimit.Admitted || left() != before || tokens != [2]int64{s.left(tenant), s.left(b)} {
			t.Errorf("full %d: %v; %v counted, was %v; %d and %d tokens, had %v", full, v.Outcome, left(), before, s.left(tenant), s.left(b), tokens)
		}
		for i, u := range uses {
			if u.Refused() != (i == full) || u.Reading().Remaining != 5-before[i] {
				t.Errorf("full %d: rule %d refused: %v, %+v", full, i, u.Refused(), u.Reading())
			}
		}
		wantKey := int64(1)
		if full < 3 && (v.Limit != ratelimit.KindRule || v.Rule != rules[full].Name()) {
			t.Errorf("full %d: refused by %v %q", full, v.Limit, v.Rule)
		}
		if full == 5 { // for want of a slot, which is free
			wantKey = 2
		}
		if n := s.left(k); n != wantKey {
			t.Errorf("full %d: the key has %d tokens, want %d", full, n, wantKey)
		}
	}
}

// windowsAreAligned: a window begins at a multiple of its length in Unix time; the
// wait of a refusal is the true rest of it, and of several the longest.
func windowsAreAligned(t *testing.T, make Maker) {
	for _, length := range []time.Duration{time.Second, time.Minute, 90 * time.Minute, 7 * 24 * time.Hour} {
		s := make(t)
		s.toWindow(length)
		s.Advance(length / 4)
		short, long := rule("short", length), rule("long", 3*length)
		s.meet(use(short, "p", 1, 1))
		wantVerdict(t, length.String(), s.meet(use(short, "p", 1, 1)), ratelimit.RateLimited, ratelimit.KindRule, length-length/4, ratelimit.KindRule)
		u := []ratelimit.Use{use(short, "p", 1, 3)}
		s.admit(ratelimit.Admission{Service: anything, Uses: u})
		want := ratelimit.Reading{Kind: ratelimit.KindRule, Name: "short", Quota: 3, Remaining: 1, Window: length, Next: length - length/4}
		if r := u[0].Reading(); r != want {
			t.Errorf("%v: %+v, want %+v", length, r, want)
		}
		if _, left := s.Counted(short, "nobody", s.Now()); left != want.Next {
			t.Errorf("%v: %v left, want %v", length, left, want.Next)
		}
		s.Advance(want.Next - s.step())
		if s.meet(use(short, "p", 1, 2)).Outcome == ratelimit.Admitted {
			t.Errorf("%v: admitted before the window is over", length)
		}
		s.Advance(s.step())
		if v := s.meet(use(short, "p", 1, 1), use(long, "p", 1, 1)); v.Outcome != ratelimit.Admitted {
			t.Errorf("%v: refused when the window is over: %+v", length, v)
		}
		rest := 3*length - time.Duration((s.Epoch+s.Now())%(3*int64(length)))
		v := s.meet(use(short, "p", 1, 1), use(long, "p", 1, 1))
		wantVerdict(t, "both", v, ratelimit.RateLimited, ratelimit.KindRule, rest, ratelimit.KindRule)
		if rest > length && v.Rule != "long" {
			t.Errorf("%v: %s decided, which is over sooner", length, v.Rule)
		}
	}
}

// rulesObserve: a rule that observes refuses nothing, tells what it would have
// refused, and counts as one that refuses does.
func rulesObserve(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Hour)
	watch := ratelimit.NewRule("r", "requests", time.Hour, true)
	for i := range 5 {
		u := []ratelimit.Use{use(watch, "p", 1, 3)}
		_, v := s.admit(ratelimit.Admission{Service: anything, Uses: u})
		if v != (ratelimit.Verdict{}) || u[0].Refused() != (i >= 3) {
			t.Errorf("call %d: %+v, refused %v", i, v, u[0].Refused())
		}
	}
	if n := s.counted(watch, "p"); n != 3 {
		t.Errorf("%d counted, want 3", n)
	}
	enforced := rule("r", time.Hour) // in its place, after a reload
	if v := s.meet(use(enforced, "p", 1, 3)); v.Outcome != ratelimit.RateLimited {
		t.Errorf("what was observed is not what is enforced: %+v", v)
	}
	full := rule("full", time.Hour)
	for range 2 { // the second time another limit refuses: nothing is counted either
		s.meet(use(watch, "q", 1, 9), use(full, "p", 1, 1))
	}
	if n := s.counted(watch, "q"); n != 1 {
		t.Errorf("%d counted, want the one that ran", n)
	}
}

// maxIsOfTheCall: each call is held to its own maximum; what counts for more than
// that is never admitted; a lowered maximum admits nobody until the window is over.
func maxIsOfTheCall(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Minute)
	r := rule("r", time.Minute)
	for i, step := range []struct {
		count, most int64
		want        ratelimit.Outcome
		never       bool
		remaining   int64
	}{
		{3, 10, ratelimit.Admitted, false, 7},
		{3, 5, ratelimit.RateLimited, false, 2},
		{2, 5, ratelimit.Admitted, false, 0},
		{1, 2, ratelimit.RateLimited, false, 0}, // lowered below what is counted
		{0, 2, ratelimit.Admitted, false, 0},    // what counts for nothing
		{11, 10, ratelimit.RateLimited, true, 5},
		{1, 0, ratelimit.RateLimited, true, 0},
		{0, 0, ratelimit.Admitted, false, 0},
		{0, -1, ratelimit.RateLimited, true, 0},
		{-4, 10, ratelimit.Admitted, false, 5}, // mints nothing
		{1 << 62, 1<<63 - 1, ratelimit.RateLimited, true, ratelimit.MaxQuota - 5},
		{ratelimit.MaxQuota - 5, 1<<63 - 1, ratelimit.Admitted, false, 0},
	} {
		u := []ratelimit.Use{use(r, "p", step.count, step.most)}
		_, v := s.admit(ratelimit.Admission{Service: anything, Uses: u})
		if v.Outcome != step.want || v.Never != step.never || u[0].Reading().Remaining != step.remaining {
			t.Errorf("step %d: %v, never %v, %+v", i, v.Outcome, v.Never, u[0].Reading())
		}
		if v.Outcome != ratelimit.Admitted && v.Wait != time.Minute {
			t.Errorf("step %d: wait %v, want the window", i, v.Wait)
		}
	}
	// One that no wait helps with decides over one with a longer wait.
	slow := rule("slow", 24*time.Hour)
	s.meet(use(slow, "p", 1, 1))
	v := s.meet(use(slow, "p", 1, 1), use(r, "q", 2, 1))
	if _, left := s.Counted(slow, "p", s.Now()); v.Rule != "r" || !v.Never || v.Wait != left {
		t.Errorf("%+v, want never by r, and the longest wait", v)
	}
}

// moreIsCountedLater: what flows is counted in the window that it flows in, past
// the maximum too, and refuses who comes next.
func moreIsCountedLater(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Minute)
	bytes := ratelimit.NewRule("r", "bytes", time.Minute, false)
	running := []ratelimit.Use{use(bytes, "p", 10, 1000)}
	ticket, v := s.admit(ratelimit.Admission{Service: anything, Uses: running})
	if v.Outcome != ratelimit.Admitted {
		t.Fatalf("%+v", v)
	}
	s.Count(&running[0], 900, s.Now())
	if v := s.meet(use(bytes, "p", 10, 1000)); v.Outcome != ratelimit.Admitted {
		t.Errorf("at 910 of 1000: %+v", v)
	}
	s.Count(&running[0], 5000, s.Now())
	s.Count(&running[0], -3, s.Now())
	s.Count(&running[0], 0, s.Now())
	if n := s.counted(bytes, "p"); n != 5920 {
		t.Errorf("%d counted, want 5920", n)
	}
	wantVerdict(t, "past the line", s.meet(use(bytes, "p", 1, 1000)), ratelimit.RateLimited, ratelimit.KindRule, time.Minute, ratelimit.KindRule)
	s.Advance(time.Minute)
	s.Count(&running[0], 7, s.Now())
	if n := s.counted(bytes, "p"); n != 7 {
		t.Errorf("%d counted in the next window, want 7", n)
	}
	ticket.Release()
	unasked := use(bytes, "q", 1, 1)
	s.Count(&unasked, 5, s.Now())
	if n := s.counted(bytes, "q"); n != 0 {
		t.Errorf("a call that was not asked counted %d", n)
	}
}

// aRuleIsItsNameAndWindow: any number of Rules of a name, of what is counted and of
// a window are one, whatever their mode; everything else is another.
func aRuleIsItsNameAndWindow(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Hour)
	s.meet(use(rule("r", time.Minute), "p", 1, 1))
	if s.meet(use(rule("r", time.Minute), "p", 1, 1)).Outcome == ratelimit.Admitted {
		t.Error("two Rules of a name are not one")
	}
	for _, u := range []ratelimit.Use{
		use(rule("r", time.Minute), "", 1, 1), use(rule("r", time.Minute), "P", 1, 1), use(rule("r", time.Hour), "p", 1, 1),
		use(rule("R", time.Minute), "p", 1, 1), use(ratelimit.NewRule("r", "bytes", time.Minute, false), "p", 1, 1),
	} {
		if v := s.meet(u); v.Outcome != ratelimit.Admitted {
			t.Errorf("%s of %q shares the counts of another: %+v", u.Rule.Name(), u.Partition, v)
		}
	}
}

// rulesInAnyOrder: calls that meet the same rules in different orders, for tenants
// of their own, neither wait for each other for ever nor count anything twice.
func rulesInAnyOrder(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Hour)
	a, b, c := rule("a", time.Hour), rule("b", time.Hour), rule("c", time.Hour)
	orders := [][]*ratelimit.Rule{{a, b, c}, {c, b, a}, {b, c, a}, {c, a, b}, {b}, {a, c}}
	var all sync.WaitGroup
	var met [3]atomic.Int64
	for i, order := range orders {
		tenant := tenant(fmt.Sprint("t", i), ratelimit.Limit{}, 0)
		all.Go(func() {
			for range scaled(20_000) {
				uses := []ratelimit.Use{}
				for _, r := range order {
					uses = append(uses, use(r, "p", 1, 1<<40))
				}
				ticket, v := s.admit(ratelimit.Admission{Tenant: tenant, Service: anything, Uses: uses})
				if v.Outcome != ratelimit.Admitted {
					t.Errorf("%+v", v)
					return
				}
				ticket.Release()
				for _, r := range order {
					met[r.Name()[0]-'a'].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i, r := range []*ratelimit.Rule{a, b, c} {
		if n := s.counted(r, "p"); n != met[i].Load() {
			t.Errorf("%s counted %d of %d", r.Name(), n, met[i].Load())
		}
	}
}

// countsComeBackInTheirWindow: what a call has counted for that waits for a slot and
// leaves without one comes back while the window lasts that it was counted in, and is
// over with it. A rule that would have refused the call gives back nothing, having
// counted nothing.
func countsComeBackInTheirWindow(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Hour)
	minutes, hours, watch := rule("minutes", time.Minute), rule("hours", time.Hour), ratelimit.NewRule("watch", "requests", time.Hour, true)
	holder := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 1), Service: anything}
	holds := s.occupy(t, holder)
	s.meet(use(hours, "p", 4, 100), use(watch, "p", 1, 2))
	wait := func() *ratelimit.Place {
		a := holder
		a.Uses = []ratelimit.Use{use(watch, "p", 5, 2), use(hours, "p", 3, 100), use(minutes, "p", 2, 100)}
		return s.queue(t, a)
	}
	counts := func() [3]int64 {
		return [3]int64{s.counted(minutes, "p"), s.counted(hours, "p"), s.counted(watch, "p")}
	}
	want := func(what string, want [3]int64) {
		t.Helper()
		if got := counts(); got != want {
			t.Errorf("%s: %v counted, want %v", what, got, want)
		}
	}
	first, second := wait(), wait()
	want("while they wait", [3]int64{4, 10, 1})
	first.Leave(s.Now())
	first.Leave(s.Now())
	want("after one left", [3]int64{2, 7, 1})
	s.Advance(time.Minute)
	s.meet(use(minutes, "p", 1, 100))
	second.Leave(s.Now())
	want("after the other left, a minute later", [3]int64{1, 4, 1})
	third := wait()
	holds.Release()
	if _, v := third.End(s.Now()); v.Outcome != ratelimit.Admitted {
		t.Errorf("%+v", v)
	}
	want("of one that ran", [3]int64{3, 7, 1})
}
