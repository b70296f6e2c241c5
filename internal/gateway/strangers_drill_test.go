package gateway_test

import (
	"net/netip"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
)

// TestACrowdAtTheDoor: of a crowd of addresses (100,000 with DRILLS=full) that fail
// to authenticate, in a table that has room for 200, those who have used up their
// failures get no new ones; a registered key is told what it would be told without
// the crowd; and operators are warned once a minute.
func TestACrowdAtTheDoor(t *testing.T) {
	const size, perMinute, watched = 200, 3, 40
	crowd := drills(1500, 100_000)
	var warned []time.Time
	var w *world
	w = setup{
		settings: func(s *config.Settings) { s.RateAuthPerMinute = perMinute; s.TrustedProxies = loopback },
		limiter: func(o *ratelimit.Options) {
			o.TableSize = size
			o.Warn = func(string) { warned = append(warned, w.clock.Now()) }
		},
	}.world(t, hello, limited("k", 1, 5))

	failed := map[netip.Addr][]time.Time{} // of those that are watched, when each failed and was not told to wait
	fail := func(a netip.Addr) {
		got := w.from(a.String(), "")
		if got.code == "rate_limited" {
			return
		}
		got.want(t, a.String(), 401, "unauthenticated", "")
		if list, ok := failed[a]; ok {
			list = append(list, w.clock.Now())
			failed[a] = list
			// Any three failures in a row, and one more, take at least a third of a minute.
			if n := len(list); n > perMinute && list[n-1].Sub(list[n-1-perMinute]) < time.Minute/perMinute {
				t.Fatalf("%s was let fail at %v", a, list[n-1-perMinute:])
			}
		}
	}
	var drained []netip.Addr
	for a := netip.MustParseAddr("198.18.0.1"); len(drained) < watched; a = a.Next() {
		failed[a] = nil
		drained = append(drained, a)
		for range perMinute + 1 {
			fail(a)
		}
	}
	began, calls := w.clock.Now(), int64(0)
	a := netip.MustParseAddr("203.0.113.1")
	for i := range crowd {
		w.clock.Advance(10 * time.Millisecond)
		a = a.Next()
		fail(a)
		if i%10 == 0 {
			fail(drained[i/10*7%watched])
		}
		if i%200 == 0 { // every two seconds, at one a second: its bucket is full each time
			calls++
			got := w.act("k", plainCall("tools", ""))
			got.want(t, "a registered key", 200, "", "")
			if left := got.left(t)["key"]; left != 4 {
				t.Fatalf("the key has %d left of 5, after one call", left)
			}
		}
	}
	for i := 1; i < len(warned); i++ {
		if gap := warned[i].Sub(warned[i-1]); gap < time.Minute {
			t.Errorf("warned twice within %v", gap)
		}
	}
	if st := w.limiter.Stats().Tables[ratelimit.Addresses]; len(warned) == 0 || st.Entries > size || st.UnexpiredEvictions != 0 {
		t.Errorf("%d warnings, %+v", len(warned), st)
	}
	took, admitted := w.clock.Now().Sub(began), 0
	for _, list := range failed {
		admitted += len(list)
	}
	if most := watched * (perMinute + int(took*perMinute/time.Minute) + 1); admitted > most {
		t.Errorf("the watched failed %d times in %v, want at most %d", admitted, took, most)
	}
	t.Logf("%d addresses in %v of their time: %d watched ones failed %d times, %d calls of a registered key untouched, %d warnings", crowd, took, watched, admitted, calls, len(warned))
}
