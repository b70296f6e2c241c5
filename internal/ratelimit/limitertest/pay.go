package limitertest

import (
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// payingTakesNoSlot: who has slots already pays the same tokens as a call does, is
// refused by the same buckets and rules, which keep what they had then, and neither
// takes a slot nor is refused for want of one.
func payingTakesNoSlot(t *testing.T, make Maker) {
	s := make(t).under(1)
	s.Advance(100 * time.Second)
	s.toWindow(time.Hour)
	k := key("k", ratelimit.Limit{Interval: second, Burst: 6})
	t1, b := tenant("t", ratelimit.Limit{Interval: second, Burst: 5}, 1), bucket("k", "s", ratelimit.Limit{Interval: second, Burst: 4})
	r, service := rule("r", time.Hour), ratelimit.NewService("s", 1)
	admission := func() ratelimit.Admission {
		return ratelimit.Admission{Tenant: t1, Bucket: b, Service: service, Uses: []ratelimit.Use{use(r, "p", 1, 3)}}
	}
	pay := func() ratelimit.Verdict {
		c := s.Take(k, s.Now())
		if c.Refused() {
			return c.Verdict()
		}
		return s.Pay(c, admission(), s.Now())
	}
	if _, v := s.call(k, admission()); v.Outcome != ratelimit.Admitted {
		t.Fatalf("%+v", v)
	}
	levels := func(what string, ofKey, ofTenant, ofService, ofRule int64) {
		t.Helper()
		bucket, slots := s.Peek(t1, s.Now())
		if s.left(k) != ofKey || bucket.Remaining != ofTenant || s.left(b) != ofService || s.counted(r, "p") != ofRule || slots.Remaining != 0 {
			t.Errorf("%s: left of the key %d, the tenant %d, the service %d, counted %d, slots left %d; want %d, %d, %d, %d, 0", what,
				s.left(k), bucket.Remaining, s.left(b), s.counted(r, "p"), slots.Remaining, ofKey, ofTenant, ofService, ofRule)
		}
	}
	levels("a call that has every slot there is", 5, 4, 3, 1)
	for range 2 { // all slots are taken, and that is nothing to it
		if v := pay(); v.Outcome != ratelimit.Admitted {
			t.Errorf("%v by %v", v.Outcome, v.Limit)
		}
	}
	levels("two more", 3, 2, 1, 3)
	if v := pay(); v.Outcome != ratelimit.RateLimited || v.Limit != ratelimit.KindRule || v.Rule != "r" {
		t.Errorf("%+v, want the rule's refusal", v)
	}
	levels("what a rule refused has spent the key's token alone", 2, 2, 1, 3)
	s.take(b)
	wantVerdict(t, "the bucket of key and service and the rule", func() ratelimit.Verdict { v := pay(); v.Wait = 0; return v }(), ratelimit.RateLimited, ratelimit.KindRule, 0, ratelimit.KindService, ratelimit.KindRule)
	levels("a bucket and a rule", 1, 2, 0, 3)
	s.Advance(time.Second)
	if v := s.Pay(ratelimit.Charge{}, ratelimit.Admission{Tenant: t1, Bucket: b, Service: service}, s.Now()); v.Outcome != ratelimit.Admitted {
		t.Errorf("without a rule and a key: %+v", v)
	}
	levels("without them", 2, 2, 0, 3)
}
