package ratelimit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// use asks for one of ten by a name, looked up anew each time.
func (l *Local) use(r *Rule, partition string, now int64) (Use, Verdict) {
	u := []Use{{Rule: r, Partition: partition, Count: 1, Max: 10}}
	_, v := l.Admit(Charge{}, Admission{Service: NewService("s", 0), Uses: u}, now)
	return u[0], v
}

// TestAWindowIsWhereItsTimeLies: also before 1970, and at the ends of what a clock
// can say.
func TestAWindowIsWhereItsTimeLies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unix := rapid.Int64Range(math.MinInt64/4, math.MaxInt64/4).Draw(t, "unix")
		length := rapid.Int64Range(1, maxWindow).Draw(t, "length")
		w := windowAt(unix, length)
		if begins := w * length; begins > unix || unix-begins >= length {
			t.Fatalf("%d in windows of %d is in number %d", unix, length, w)
		}
	})
}

// TestAFullRuleSharesOneCount: partition keys that find the counts full share one,
// up to what one of them may have, until the window is over; those that were there
// keep their own. No other rule has less room for it.
func TestAFullRuleSharesOneCount(t *testing.T) {
	var warned []string
	l := NewLocal(Options{TableSize: 3, Warn: func(table string) { warned = append(warned, table) }})
	crowded, other := NewRule("crowded", "requests", time.Minute, false), NewRule("other", "requests", time.Minute, false)
	for i := range 3 {
		l.use(crowded, fmt.Sprint("resident ", i), 0)
	}
	admitted := 0
	for i := range 50 {
		if _, v := l.use(crowded, fmt.Sprint("newcomer ", i), int64(i)); v.Outcome == Admitted {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("%d newcomers admitted, want the 10 of one", admitted)
	}
	for i := range 9 {
		if u, v := l.use(crowded, "resident 0", 60); v.Outcome != Admitted || u.Reading().Remaining != int64(8-i) {
			t.Errorf("a resident pays for newcomers: %+v", u.Reading())
		}
	}
	if u, _ := l.use(other, "newcomer 7", 60); u.Reading().Remaining != 9 {
		t.Errorf("another rule is crowded too: %+v", u.Reading())
	}
	if len(warned) != 1 || warned[0] != "rule crowded" {
		t.Errorf("warned of %q, want once", warned)
	}
	want := []RuleStats{{Name: "crowded", Entries: 3, Size: 3, Overflowed: 10}, {Name: "other", Entries: 1, Size: 3}}
	if got := l.Stats().Rules; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, want %+v", got, want)
	}
	// In the next window there is room, and it is told once a minute at most.
	now := int64(time.Minute)
	for range 3 {
		for i := range 20 {
			if u, v := l.use(crowded, fmt.Sprint("newcomer ", i), now); i < 3 && (v.Outcome != Admitted || u.Reading().Remaining != 9) {
				t.Errorf("after the window: %+v", u.Reading())
			}
		}
		now += int64(time.Minute)
	}
	if len(warned) != 4 {
		t.Errorf("warned %d times in four minutes", len(warned))
	}
}

// TestAMillionStrangersAtARule: memory stays what the table's size says, and
// is let go when the window is over, without anybody calling.
func TestAMillionStrangersAtARule(t *testing.T) {
	l := NewLocal(Options{TableSize: 1000})
	r := NewRule("r", "requests", time.Minute, false)
	for i := range scaled(1_000_000) {
		l.use(r, fmt.Sprint(i), 0)
	}
	if st := l.Stats().Rules[0]; st.Entries != 1000 {
		t.Errorf("%+v", st)
	}
	l.Sweep(int64(time.Minute) - 1)
	if st := l.Stats().Rules[0]; st.Entries != 1000 {
		t.Errorf("swept while the window lasts: %+v", st)
	}
	l.Sweep(int64(time.Minute))
	if st := l.Stats().Rules[0]; st.Entries != 0 {
		t.Errorf("kept after the window: %+v", st)
	}
}

// TestRefusedCallsMakeNoEntry: neither those that the rule refuses nor those that
// count for nothing.
func TestRefusedCallsMakeNoEntry(t *testing.T) {
	l := NewLocal(Options{})
	r := NewRule("r", "requests", time.Minute, false)
	for i := range 100 {
		u := []Use{{Rule: r, Partition: fmt.Sprint(i), Count: int64(i % 2 * 20), Max: 10}}
		l.Admit(Charge{}, Admission{Service: NewService("s", 0), Uses: u}, 0)
	}
	if st := l.Stats().Rules[0]; st.Entries != 0 {
		t.Errorf("%+v", st)
	}
}

// TestAStaleClockGetsNoOldWindow: who comes with the time of a window that is over
// counts in the one that is not, and is told of its end.
func TestAStaleClockGetsNoOldWindow(t *testing.T) {
	l := NewLocal(Options{})
	r := NewRule("r", "requests", time.Second, false)
	for range 10 {
		l.use(r, "p", int64(time.Second))
	}
	u, v := l.use(r, "p", int64(time.Second)-1)
	if v.Outcome != RateLimited || v.Wait != time.Second {
		t.Errorf("%+v, %+v", u.Reading(), v)
	}
	if u, v := l.use(r, "p", int64(2*time.Second)); v.Outcome != Admitted || u.Reading().Remaining != 9 {
		t.Errorf("%+v, %+v", u.Reading(), v)
	}
}

// TestARuleOfTwoWindowsIsOneInStats: a reload that changed it leaves both for a
// while, and a metric must not have two series of one name.
func TestARuleOfTwoWindowsIsOneInStats(t *testing.T) {
	l := NewLocal(Options{})
	for _, window := range []time.Duration{time.Minute, time.Hour} {
		l.use(NewRule("r", "requests", window, false), "p", 0)
	}
	if st := l.Stats().Rules; len(st) != 1 || st[0].Entries != 2 {
		t.Errorf("%+v", st)
	}
}

// TestRulesAskInPlace: a call that meets rules costs no memory of the limiter's
// but for the names that it keeps.
func TestRulesAskInPlace(t *testing.T) {
	l := NewLocal(Options{})
	service := NewService("s", 0)
	a, b := NewRule("a", "requests", time.Minute, false), NewRule("b", "requests", time.Hour, false)
	for _, uses := range [][]Use{{{Rule: a, Partition: "p"}, {Rule: b, Partition: "p"}}, {{Rule: b, Partition: "p"}, {Rule: a, Partition: "p"}}} {
		if n := testing.AllocsPerRun(100, func() {
			for i := range uses {
				uses[i].Count, uses[i].Max = 1, 1<<40
			}
			ticket, _ := l.Admit(Charge{}, Admission{Service: service, Uses: uses}, 0)
			ticket.Release()
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

func BenchmarkRules(b *testing.B) {
	for _, n := range []int{0, 1, 5} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			l := NewLocal(Options{})
			tenant, service := NewTenant(Registered, "t", Limit{Interval: 1, Burst: 1 << 30}, 32), NewService("s", 0)
			uses := make([]Use, n)
			for i := range uses {
				uses[i] = Use{Rule: NewRule(fmt.Sprint("r", i), "requests", time.Minute, false), Partition: "203.0.113.7"}
			}
			b.ReportAllocs()
			for now := int64(0); b.Loop(); now++ {
				for i := range uses {
					uses[i].Count, uses[i].Max = 1, MaxQuota
				}
				ticket, _ := l.Admit(Charge{}, Admission{Tenant: tenant, Service: service, Uses: uses}, now)
				ticket.Release()
			}
		})
	}
}

// TestAnEmptyWindowHasNoNext: a reading of which nothing is counted says no time at
// which more comes, as all is there.
func TestAnEmptyWindowHasNoNext(t *testing.T) {
	l := NewLocal(Options{})
	r := NewRule("r", "requests", time.Minute, false)
	u := []Use{{Rule: r, Partition: "p", Count: 0, Max: 10}}
	l.Admit(Charge{}, Admission{Service: NewService("s", 0), Uses: u}, int64(20*time.Second))
	if got := u[0].Reading(); got.Next != 0 || got.Remaining != 10 {
		t.Errorf("%+v", got)
	}
	if u, _ := l.use(r, "p", int64(20*time.Second)); u.Reading().Next != 40*time.Second {
		t.Errorf("of a window that has begun: %+v", u.Reading())
	}
}

// TestCountsStayWithinWhatCanBeCounted, however much flows and whatever is taken back:
// one past the end would begin from below nothing, and let everybody pass.
func TestCountsStayWithinWhatCanBeCounted(t *testing.T) {
	for name, w := range map[string]*windows{
		"own": {size: 1, counts: map[string]int64{"p": maxCount - 1}}, "shared": {counts: map[string]int64{}, shared: maxCount - 1, warnedAt: math.MinInt64},
	} {
		for _, step := range []struct{ n, want int64 }{{5, maxCount}, {maxCount, maxCount}, {maxCount, maxCount}, {-maxCount, 0}, {-1, 0}, {3, 3}} {
			if got := w.addLocked("p", step.n); got != step.want || w.usedLocked("p") != step.want {
				t.Errorf("%s: %d more make %d, want %d", name, step.n, got, step.want)
			}
		}
	}
}
