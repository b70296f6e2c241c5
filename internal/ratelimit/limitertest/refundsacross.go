package limitertest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"agentgw/internal/ratelimit"
)

// happening is what a bucket met: time, another limit, a call that was let through.
type happening struct {
	pass  int64
	limit ratelimit.Limit // unless it is the zero Limit
	call  bool
	back  bool // the call was given back, later
}

// eighth of a token are what limits of 10, 20, 40 and 80 ms are counted in here, in
// steps of 10 ms.
const eighths = 8

// owedWithout is the least that a bucket owes, in eighths, that never saw what was
// given back. One that is full may be so under a raised burst too.
func owedWithout(l ratelimit.Limit, history []happening) (owes int64) {
	for _, h := range history {
		owes = max(0, owes-h.pass*eighths/l.Interval)
		if !h.limit.Unlimited() {
			if owes > 0 {
				owes = max(0, owes+eighths*(h.limit.Burst-l.Burst))
			}
			l = h.limit
		}
		if h.call && !h.back {
			owes += eighths
		}
	}
	return owes
}

// refundsAcrossChangesMintNothing: calls wait while the rate and the burst of a limit
// of theirs change, once or often, and leave. There are never more tokens than had
// they not come.
func refundsAcrossChangesMintNothing(t *testing.T, make Maker) {
	long(t)
	rapid.Check(t, func(t *rapid.T) {
		s := make(t)
		draw := func() ratelimit.Limit {
			return ratelimit.Limit{
				Interval: 10 * ms * rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "interval"), Burst: rapid.Int64Range(1, 8).Draw(t, "burst"),
			}
		}
		which := rapid.IntRange(0, 2).Draw(t, "limited")
		var limits [3]ratelimit.Limit
		call := func() (*ratelimit.Ref, ratelimit.Admission) {
			return key("k", limits[0]), ratelimit.Admission{Tenant: tenant("t", limits[1], 1), Bucket: bucket("k", "s", limits[2]), Service: ratelimit.NewService("s", 0)}
		}
		_, a := call()
		s.occupy(t, a) // for good
		limits[which] = draw()
		first := limits[which]
		type waiter struct {
			place *ratelimit.Place
			came  int // in history
		}
		var waiting []waiter
		var history []happening
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			op := rapid.SampledFrom([]string{"pass", "come", "come", "leave", "change"}).Draw(t, "op")
			h := happening{}
			switch {
			case op == "pass":
				now := s.Now()
				advance(t, s, 10)
				h.pass = s.Now() - now
			case op == "leave":
				if len(waiting) > 0 {
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "who")
					waiting[i].place.Leave(s.Now())
					history[waiting[i].came].back = true
					waiting = slices.Delete(waiting, i, i+1)
				}
			case op == "change":
				limits[which] = draw()
				h.limit = limits[which]
			}
			k, a := call()
			// Also after a change: it holds from when it is first asked for.
			if op == "come" || op == "change" {
				if c := s.Take(k, s.Now()); !c.Refused() {
					if _, p, v := s.enterBy(c, a, many); v.Outcome == ratelimit.Queued {
						h.call = true
						waiting = append(waiting, waiter{p, len(history)})
					} else if v.Outcome != ratelimit.RateLimited {
						t.Fatal(op, v.Outcome)
					}
				}
			}
			history = append(history, h)
			of, l := []*ratelimit.Ref{k, a.Tenant, a.Bucket}[which], limits[which]
			most := (eighths*l.Burst - owedWithout(first, history)) / eighths
			if left := s.left(of); left > most {
				t.Fatalf("%+v of limit %d at %d: %d tokens left, %d had who left not come", l, which, s.Now(), left, most)
			}
		}
	})
}
