package limitertest

import (
	"slices"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// callersWithoutATenant: of those who have neither a key nor a tenant, each has his
// bucket, which is charged with all else or not at all; and the slots that they share
// hold them all.
func callersWithoutATenant(t *testing.T, make Maker) {
	const (
		callerDry = 1 << iota
		serviceDry
		serviceFull
		processFull
		all
	)
	two := ratelimit.Limit{Interval: second, Burst: 2}
	caller := func(name string) *ratelimit.Ref {
		return ratelimit.NewRef(ratelimit.OpenCallers, ratelimit.KindCaller, name, two)
	}
	at := func(name string) *ratelimit.Ref {
		return ratelimit.NewRef(ratelimit.OpenCallers, ratelimit.KindService, ratelimit.ServiceBucket(name, "s"), two)
	}
	for set := range all {
		s := make(t).under(1 + int64(set&serviceFull/serviceFull))
		s.Advance(100 * time.Second)
		service, elsewhere := ratelimit.NewService("s", 1), ratelimit.NewService("elsewhere", 0)
		call := ratelimit.Admission{Caller: caller("c"), Bucket: at("c"), Service: service}
		if set&serviceDry != 0 {
			s.take(call.Bucket)
			s.take(call.Bucket)
			s.Advance(time.Second / 4)
		}
		if set&callerDry != 0 {
			s.take(call.Caller)
			s.take(call.Caller)
		}
		for mask, of := range map[int]*ratelimit.Service{serviceFull: service, processFull: elsewhere} {
			if set&mask == 0 {
				continue
			}
			if _, v := s.admit(ratelimit.Admission{Caller: caller("holder"), Service: of}); v.Outcome != ratelimit.Admitted {
				t.Fatalf("set %b: %+v", set, v)
			}
		}
		before := [2]int64{s.left(call.Caller), s.left(call.Bucket)}
		ticket, v := s.admit(call)
		var violated []ratelimit.Kind
		for i, k := range []ratelimit.Kind{ratelimit.KindCaller, ratelimit.KindService, ratelimit.KindServiceSlots, ratelimit.KindProcessSlots} {
			if set&(1<<i) != 0 {
				violated = append(violated, k)
			}
		}
		after := [2]int64{s.left(call.Caller), s.left(call.Bucket)}
		switch {
		case set == 0:
			readings := map[ratelimit.Kind]int64{}
			for r := range v.Readings() {
				readings[r.Kind] = r.Remaining
			}
			if v.Outcome != ratelimit.Admitted || after != [2]int64{1, 1} || readings[ratelimit.KindCaller] != 1 || readings[ratelimit.KindService] != 1 {
				t.Errorf("nothing refuses: %v by %v, %v left, told of %v", v.Outcome, v.Limit, after, readings)
			}
			ticket.Release()
			continue
		case set&callerDry != 0:
			wantVerdict(t, "caller dry", v, ratelimit.RateLimited, ratelimit.KindCaller, time.Second, violated...)
		case set&serviceDry != 0:
			wantVerdict(t, "service dry", v, ratelimit.RateLimited, ratelimit.KindService, time.Second*3/4, violated...)
		default:
			wantVerdict(t, "slots", v, ratelimit.ConcurrencyLimited, violated[0], time.Second, violated...)
		}
		if after != before {
			t.Errorf("set %b: a refusal changed %v to %v", set, before, after)
		}
		if _, v := s.admit(ratelimit.Admission{Caller: caller("another"), Service: elsewhere}); set&processFull == 0 && v.Outcome != ratelimit.Admitted {
			t.Errorf("set %b: another caller: %v by %v", set, v.Outcome, v.Limit)
		}
	}
}

// callersWait in one party, whoever they are, and whoever leaves gets his token back.
func callersWait(t *testing.T, make Maker) {
	s := make(t).under(1)
	s.Advance(100 * time.Second)
	two := ratelimit.Limit{Interval: second, Burst: 2}
	service := ratelimit.NewService("s", 0)
	by := func(name string) ratelimit.Admission {
		return ratelimit.Admission{Caller: ratelimit.NewRef(ratelimit.OpenCallers, ratelimit.KindCaller, name, two), Service: service}
	}
	holds := s.occupy(t, by("first"))
	a, b := by("a"), by("b")
	_, waits, v := s.enterBy(ratelimit.Charge{}, a, 1)
	if v.Outcome != ratelimit.Queued || s.left(a.Caller) != 1 {
		t.Fatalf("%v by %v, %d tokens left", v.Outcome, v.Limit, s.left(a.Caller))
	}
	// A name costs nothing, and must not be worth a place of its own.
	if _, _, v := s.enterBy(ratelimit.Charge{}, b, 1); v.Outcome != ratelimit.ConcurrencyLimited || s.left(b.Caller) != 2 {
		t.Errorf("another name: %v by %v, %d tokens left", v.Outcome, v.Limit, s.left(b.Caller))
	}
	_, v = waits.End(s.Now())
	for r := range v.Readings() {
		if r.Kind == ratelimit.KindCaller && r.Remaining != 2 || r.Kind != ratelimit.KindCaller && r.Kind != ratelimit.KindProcessSlots {
			t.Errorf("who has waited in vain is told of %+v", r)
		}
	}
	if n := len(slices.Collect(v.Readings())); v.Outcome != ratelimit.ConcurrencyLimited || n != 2 {
		t.Errorf("who has waited in vain: %v by %v, %d readings", v.Outcome, v.Limit, n)
	}
	_, waits, _ = s.enterBy(ratelimit.Charge{}, a, 1)
	waits.Leave(s.Now())
	if s.left(a.Caller) != 2 {
		t.Errorf("%d tokens left for who left", s.left(a.Caller))
	}
	_, waits, _ = s.enterBy(ratelimit.Charge{}, a, 1)
	holds.Release()
	ticket, v := waits.End(s.Now())
	if v.Outcome != ratelimit.Admitted || s.left(a.Caller) != 1 {
		t.Errorf("%v by %v, %d tokens left", v.Outcome, v.Limit, s.left(a.Caller))
	}
	ticket.Release()
}
