package ratelimit

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"pgregory.net/rapid"
)

func tableStats(l *Local) TableStats { return l.Stats().Tables[Registered] }

// TestDrainedNeverComesBackFull: a table of 100, a drained key, 200 others.
func TestDrainedNeverComesBackFull(t *testing.T) {
	slow, quick := Limit{60 * second, 1}, Limit{1, 1}
	for _, tt := range []struct {
		name   string
		others Limit
	}{{"others can go", quick}, {"others owe too", slow}} {
		l := NewLocal(Options{TableSize: 100})
		if _, v := l.take(Registered, KindKey, "K", slow, 1); v.Outcome != Admitted {
			t.Fatal(v.Outcome)
		}
		for i := range 200 {
			l.take(Registered, KindKey, fmt.Sprint("other-", i), tt.others, int64(2+i))
		}
		for range 10 {
			if _, v := l.take(Registered, KindKey, "K", slow, 1000); v.Outcome != RateLimited {
				t.Errorf("%s: K is %v again", tt.name, v.Outcome)
			}
		}
		if st := tableStats(l); st.Entries != 100 || st.UnexpiredEvictions != 0 || st.Evicted+st.Overflowed != 101 {
			t.Errorf("%s: %+v", tt.name, st)
		}
		if _, v := l.take(Callers, KindKey, "K", slow, 1000); v.Outcome != Admitted {
			t.Errorf("%s: the table of others is full too", tt.name)
		}
	}
}

// TestLeastRecentlyUsedGoes, and not what was only looked at, by a reader or by a
// sweep that found it too young.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	l := NewLocal(Options{TableSize: 3})
	for i, k := range []string{"a", "b", "c", "a"} {
		l.take(Registered, KindKey, k, Limit{1, 1}, int64(i*10))
	}
	l.peek(Registered, KindKey, "b", Limit{1, 1}, 50)
	l.Sweep(55)
	l.take(Registered, KindKey, "d", Limit{1, 1}, 60)
	var names []string
	l.Each(Registered, KindKey, 60, func(e Entry) bool { names = append(names, e.Partition); return true })
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "c", "d"}) {
		t.Errorf("kept %v", names)
	}
}

// TestRefKeepsItsEntry: one used through a Ref only is not the oldest, and a Ref
// whose entry went finds the new one instead of keeping a second state alive.
func TestRefKeepsItsEntry(t *testing.T) {
	l := NewLocal(Options{TableSize: 3})
	limit := Limit{1, 1}
	ref := NewRef(Registered, KindKey, "a", limit)
	l.Take(ref, 0)
	l.take(Registered, KindKey, "b", limit, 10)
	l.take(Registered, KindKey, "c", limit, 20)
	l.Take(ref, 30)
	l.take(Registered, KindKey, "d", limit, 40)
	if l.tables[Registered].peek(id{KindKey, "a"}) == nil || l.tables[Registered].peek(id{KindKey, "b"}) != nil {
		t.Error("the wrong one went")
	}
	for i := range 10 {
		l.take(Registered, KindKey, fmt.Sprint("more-", i), limit, int64(50+i*10))
	}
	if l.tables[Registered].peek(id{KindKey, "a"}) != nil {
		t.Fatal("a is still there")
	}
	slow := Limit{1000, 1}
	ref.limit = slow
	l.Take(ref, 500)
	if _, v := l.take(Registered, KindKey, "a", slow, 500); v.Outcome != RateLimited {
		t.Error("the name and its Ref have two buckets")
	}
	if !l.Take(ref, 500).Refused() {
		t.Error("the name and its Ref have two buckets")
	}
}

// TestChargeOutlivesItsEntry: a refund of a charge whose entry went must not
// reach the entry that is there now.
func TestChargeOutlivesItsEntry(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	c, _ := l.take(Registered, KindKey, "a", Limit{10, 2}, 0)
	l.take(Registered, KindKey, "b", Limit{10, 2}, 10)
	l.take(Registered, KindKey, "a", Limit{10, 2}, 20)
	l.take(Registered, KindKey, "a", Limit{10, 2}, 20)
	c.refund(20)
	if _, v := l.take(Registered, KindKey, "a", Limit{10, 2}, 20); v.Outcome != RateLimited {
		t.Error("a stale refund was credited")
	}
}

// TestEvictedMemoryComesBack: nothing of a tenant that had calls, and went, is
// kept from the garbage collector; not by the watch over its lost tickets either.
func TestEvictedMemoryComesBack(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	l.admitAndRelease("t", 0)
	gone := weak.Make(l.tables[Registered].peek(id{KindTenant, "t"}))
	l.admitAndRelease("u", 1)
	for i := 0; gone.Value() != nil; i++ {
		if i == 1000 {
			t.Fatal("an evicted entry is still in memory")
		}
		runtime.GC()
	}
}

func (l *Local) admitAndRelease(tenant string, now int64) {
	ticket, _ := l.admit(admission{Tenant: tenant, Service: "s"}, now)
	ticket.Release()
}

// TestFreeRefusalsAreNotForgotten: a key that has used up its free concurrency
// refusals, and whose bucket is full, is not made anew by eviction.
func TestFreeRefusalsAreNotForgotten(t *testing.T) {
	l := NewLocal(Options{TableSize: 2})
	c := call{key: "k", keyLimit: Limit{100 * second, 1}, admission: admission{Tenant: "t", TenantSlots: 1, Service: "s"}}
	l.admit(c.admission, 0)
	for range 10 {
		if _, v := l.call(c, 0); v.Outcome != ConcurrencyLimited {
			t.Fatal(v.Outcome)
		}
	}
	for i := range 20 {
		l.take(Registered, KindKey, fmt.Sprint("other-", i), Limit{1, 1}, int64(100*i))
	}
	if _, v := l.call(c, 2000); v.Outcome != RateLimited || v.Limit != KindKey {
		t.Errorf("%v by %v: its free refusals came back", v.Outcome, v.Limit)
	}
}

// TestEvictedWhileWaiting: a call that found an entry and waits for its lock,
// while the entry goes, must find the one that is there then.
func TestEvictedWhileWaiting(t *testing.T) {
	l := NewLocal(Options{TableSize: 10})
	limit := Limit{1000, 1}
	l.take(Registered, KindKey, "k", limit, 0)
	s := l.tables[Registered].shards[0]
	old := l.tables[Registered].peek(id{KindKey, "k"})
	old.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.take(Registered, KindKey, "k", limit, 5000)
	}()
	for found := false; !found; runtime.Gosched() {
		s.mu.Lock()
		found = old.seated == 5000
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.dropLocked(old, 5000)
	s.mu.Unlock()
	old.mu.Unlock()
	<-done
	if _, v := l.take(Registered, KindKey, "k", limit, 5000); v.Outcome != RateLimited {
		t.Error("the token was taken from a bucket that is nobody's")
	}
	if st := tableStats(l); st.UnexpiredEvictions != 0 {
		t.Errorf("%+v", st)
	}
}

// TestEvictionChangesNoVerdict: random calls of many keys and tenants in a table
// far too small, with sweeps: per partition key, no window is ever over its limit,
// no cap is exceeded, and the table keeps its bound.
func TestEvictionChangesNoVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4
		l := NewLocal(Options{TableSize: size, Idle: 50})
		limit := drawLimit(t)
		most := rapid.Int64Range(1, 2).Draw(t, "cap")
		passed := map[string]*history{}
		type running struct {
			tenant string
			ticket Ticket
		}
		var open []running
		inFlight := map[string]int64{}
		now := int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, 15).Draw(t, "dt")
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}).Draw(t, "name")
			h := passed[name]
			if h == nil {
				h = &history{limit: limit}
				passed[name] = h
			}
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1, 2:
				ticket, v := l.admit(admission{Tenant: name, TenantLimit: limit, TenantSlots: most, Service: "s"}, now)
				if v.Outcome != Admitted {
					break
				}
				open = append(open, running{name, ticket})
				inFlight[name]++
				h.add(now)
			case 3:
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					open[i].ticket.Release()
					inFlight[open[i].tenant]--
					open = slices.Delete(open, i, i+1)
				}
			case 4:
				l.Sweep(now)
			}
			if !h.conforms() {
				t.Fatalf("%s: %v breaks %+v", name, h.times, limit)
			}
			if inFlight[name] > most {
				t.Fatalf("%s has %d in flight", name, inFlight[name])
			}
			if st := tableStats(l); st.UnexpiredEvictions != 0 {
				t.Fatalf("%+v", st)
			}
		}
	})
}

// TestForgettingIsInvisible: as long as nobody has to share an entry, a table that
// keeps forgetting tells every caller, to the nanosecond, what one that never
// forgets does.
func TestForgettingIsInvisible(t *testing.T) {
	forgot := 0
	rapid.Check(t, func(t *rapid.T) {
		small := NewLocal(Options{TableSize: 4, Idle: 20})
		large := NewLocal(Options{TableSize: 1000, Idle: time.Hour})
		limit := drawLimit(t)
		now := int64(0)
		var open [2][]Ticket
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, 40).Draw(t, "dt")
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"}).Draw(t, "name")
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				small.Sweep(now)
			case 1:
				for i := range open {
					if len(open[i]) > 0 {
						open[i][0].Release()
						open[i] = open[i][1:]
					}
				}
			default:
				c := call{key: name, keyLimit: limit, admission: admission{Tenant: name, TenantLimit: limit, TenantSlots: 1, Service: "s"}}
				a, v := small.call(c, now)
				b, w := large.call(c, now)
				if tableStats(small).Overflowed > 0 {
					return
				}
				if v != w {
					t.Fatalf("at %d: %s is told %+v, and without eviction %+v", now, name, v, w)
				}
				if v.Outcome == Admitted {
					open[0], open[1] = append(open[0], a), append(open[1], b)
				}
			}
		}
		st := tableStats(small)
		forgot += int(st.Evicted + st.Swept)
	})
	if forgot == 0 {
		t.Error("nothing was ever forgotten, so nothing was tested")
	}
}
