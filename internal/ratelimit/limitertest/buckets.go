package limitertest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// readingsAreOfTheDecision: what a verdict says is what a look at the bucket says,
// and looking costs nothing.
func readingsAreOfTheDecision(t *testing.T, make Maker) {
	s := make(t).under(9)
	ten := ratelimit.Limit{Interval: second, Burst: 10}
	k := key("k", ten)
	if r, _ := s.Peek(k, s.Now()); r.Remaining != 10 || r.Next != 0 {
		t.Errorf("%+v", r)
	}
	admitted := 0
	for i := range 12 {
		c := s.Take(k, s.Now())
		if !c.Refused() {
			admitted++
		}
		v := c.Verdict()
		want := ratelimit.Reading{Kind: ratelimit.KindKey, Quota: 10, Remaining: max(0, 9-int64(i)), Window: 10 * time.Second, Next: time.Second}
		if got := slices.Collect(v.Readings()); !slices.Equal(got, []ratelimit.Reading{want}) {
			t.Errorf("%+v, want %+v", got, want)
		}
		for range 3 {
			if r, slots := s.Peek(k, s.Now()); r != want || slots != (ratelimit.Reading{}) {
				t.Errorf("peek %+v, want %+v", r, want)
			}
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted, want 10", admitted)
	}
	if r, _ := s.Peek(key("k", ratelimit.Limit{Interval: second, Burst: 40}), s.Now()); r.Remaining != 0 || r.Quota != 40 {
		t.Errorf("peek under another limit: %+v", r)
	}

	a := ratelimit.Admission{
		Tenant: tenant("t", ten, 3), Bucket: bucket("k", "s", ratelimit.Limit{Interval: second, Burst: 2}), Service: ratelimit.NewService("s", 4),
	}
	_, v := s.admit(a)
	want := []ratelimit.Reading{
		{Kind: ratelimit.KindTenant, Quota: 10, Remaining: 9, Window: 10 * time.Second, Next: time.Second},
		{Kind: ratelimit.KindService, Quota: 2, Remaining: 1, Window: 2 * time.Second, Next: time.Second},
		{Kind: ratelimit.KindTenantSlots, Quota: 3, Remaining: 2, Gauge: true},
		{Kind: ratelimit.KindServiceSlots, Quota: 4, Remaining: 3, Gauge: true},
		{Kind: ratelimit.KindProcessSlots, Quota: 9, Remaining: 8, Gauge: true},
	}
	if got := slices.Collect(v.Readings()); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if r, slots := s.Peek(a.Tenant, s.Now()); r != want[0] || slots != want[2] {
		t.Errorf("peek at the tenant: %+v, %+v", r, slots)
	}
	s.Advance(time.Hour)
	if r, _ := s.Peek(k, s.Now()); r.Remaining != 10 || r.Next != 0 {
		t.Errorf("peek after an hour: %+v", r)
	}
}

// aNameIsOneBucket: any number of Refs of a name charge one bucket; another kind
// or table of the same name is another.
func aNameIsOneBucket(t *testing.T, make Maker) {
	s := make(t)
	l := ratelimit.Limit{Interval: second, Burst: 2}
	first, second := key("k", l), key("k", l)
	if !s.take(first) || !s.take(second) || s.take(first) || s.take(second) {
		t.Error("two Refs of a name are not one bucket")
	}
	for _, r := range []*ratelimit.Ref{
		key("K", l), key("", l), tenant("k", l, 0), ratelimit.NewRef(ratelimit.Callers, ratelimit.KindKey, "k", l),
		ratelimit.NewRef(ratelimit.Registered, ratelimit.KindCaller, "k", l),
	} {
		if !s.take(r) {
			t.Errorf("%q shares the bucket of another", r.Partition())
		}
	}
	seen := map[string][2]string{}
	parts := []string{"", "a", "b", "a/b", "1:a", "/", "1", ":", "a/", "1:a/b"}
	for _, k := range parts {
		for _, service := range parts {
			name := ratelimit.ServiceBucket(k, service)
			if other, ok := seen[name]; ok {
				t.Errorf("%q for %q and for %q", name, [2]string{k, service}, other)
			}
			seen[name] = [2]string{k, service}
		}
	}
}

// changesOfLimit carry the balance over: nothing is minted, and the new rate
// holds at once.
func changesOfLimit(t *testing.T, make Maker) {
	s := make(t)
	under := func(interval, burst int64) *ratelimit.Ref {
		return key("k", ratelimit.Limit{Interval: interval * ms, Burst: burst})
	}
	slow := under(100, 2)
	for _, want := range []bool{true, true, false} {
		if s.take(slow) != want {
			t.Fatal("a burst of 2 is not 2")
		}
	}
	quick := under(10, 20)
	if c := s.Take(quick, s.Now()); !c.Refused() || c.Verdict().Wait != 10*time.Millisecond {
		t.Errorf("raised while drained: %+v, want a wait of one new interval", c.Verdict())
	}
	s.Advance(10 * time.Millisecond)
	if !s.take(quick) || s.take(quick) {
		t.Error("after one new interval there is not one token")
	}
	s.Advance(time.Second)
	if n := s.left(quick); n != 20 {
		t.Errorf("%d tokens after a long time, want 20", n)
	}
	s.take(quick)
	lowered := under(100, 2)
	if n := s.left(lowered); n != 2 {
		t.Errorf("lowered: %d tokens, want the new burst", n)
	}
	for _, want := range []bool{true, true, false} {
		if s.take(lowered) != want {
			t.Error("lowered: more or less than the new burst")
		}
	}
	for range 5 { // to and fro
		if s.take(quick) || s.take(lowered) {
			t.Fatal("a change of limit minted a token")
		}
	}
}

// aCrowdGetsTheBurst: as many as the burst, whatever the crowd.
func aCrowdGetsTheBurst(t *testing.T, make Maker) {
	s := make(t)
	k := key("k", ratelimit.Limit{Interval: 3600 * second, Burst: 100})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range scaled(10_000) {
				if s.take(k) {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 100 {
		t.Errorf("%d admitted, want 100", admitted.Load())
	}
}
