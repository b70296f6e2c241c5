package limitertest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"agentgw/internal/ratelimit"
)

// owed is the naive account of a bucket that calls are given back of: what is left of
// each of its charges, in the order in which they came. Time pays at the front.
type owed struct {
	limit ratelimit.Limit
	rest  []int64
	kept  []int64 // when the charges were; -1 of one that was given back
}

func (o *owed) add(now int64) (charge int) {
	o.rest, o.kept = append(o.rest, o.limit.Interval), append(o.kept, now)
	return len(o.rest) - 1
}

func (o *owed) giveBack(charge int) { o.rest[charge], o.kept[charge] = 0, -1 }

func (o *owed) pass(dt int64) {
	for i, rest := range o.rest {
		paid := min(dt, rest)
		o.rest[i], dt = rest-paid, dt-paid
	}
}

// left is how many tokens there are, if a refund withholds what time has paid of its
// charge, and if it withholds nothing: as had the calls not been.
func (o *owed) left(now int64) (least, most int64) {
	sum, full := int64(0), int64(0)
	for i, rest := range o.rest {
		sum += rest
		if at := o.kept[i]; at >= 0 {
			full = max(full, at) + o.limit.Interval
		}
	}
	tokens := func(owes int64) int64 { return (o.limit.Interval*o.limit.Burst - owes) / o.limit.Interval }
	return tokens(sum), tokens(max(0, full-now))
}

// refundsWithholdWhatTimePaid and no more: calls wait, get their slot, wait in vain,
// hang up, and others are refused at once meanwhile. Each bucket of theirs has the
// tokens of who is gone, but for what was refilled of them while they stood at the
// front; and never more than had they not come.
func refundsWithholdWhatTimePaid(t *testing.T, make Maker) {
	long(t)
	rapid.Check(t, func(t *rapid.T) {
		s, l := make(t), drawLimit(t)
		l.Burst *= 4
		var limits [3]ratelimit.Limit
		which := rapid.IntRange(0, 2).Draw(t, "limited")
		limits[which] = l
		a := ratelimit.Admission{Tenant: tenant("t", limits[1], 1), Bucket: bucket("k", "s", limits[2]), Service: ratelimit.NewService("s", 0)}
		k := key("k", limits[0])
		of := []*ratelimit.Ref{k, a.Tenant, a.Bucket}[which]

		type waiter struct {
			place  *ratelimit.Place
			charge int
		}
		book := owed{limit: l}
		var waiting []waiter
		running, v := s.call(k, a)
		if v.Outcome != ratelimit.Admitted {
			t.Fatal(v.Outcome)
		}
		book.add(s.Now())
		refusals := int64(0) // what are free of the slowest key
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now := s.Now()
			switch op := rapid.SampledFrom([]string{"pass", "come", "come", "refused", "hang up", "time out", "run"}).Draw(t, "op"); {
			case op == "pass":
				advance(t, s, 10)
				book.pass(s.Now() - now)
			case op == "come":
				if c := s.Take(k, now); !c.Refused() {
					if _, p, v := s.enterBy(c, a, many); v.Outcome == ratelimit.Queued {
						waiting = append(waiting, waiter{p, book.add(now)})
					} else if v.Outcome != ratelimit.RateLimited {
						t.Fatal(op, v.Outcome)
					}
				}
			case op == "refused" && refusals < 10*l.Burst:
				if c := s.Take(k, now); !c.Refused() {
					if _, _, v := s.enterBy(c, a, 0); v.Outcome == ratelimit.ConcurrencyLimited {
						refusals++
					} else if v.Outcome != ratelimit.RateLimited {
						t.Fatal(op, v.Outcome)
					}
				}
			case len(waiting) == 0:
			case op == "run":
				running.Release()
				running, v = waiting[0].place.End(now)
				if v.Outcome != ratelimit.Admitted {
					t.Fatal(op, v.Outcome)
				}
				waiting = waiting[1:]
			default:
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "who")
				if op == "time out" && refusals < 10*l.Burst {
					refusals++
					if _, v := waiting[i].place.End(now); v.Outcome != ratelimit.ConcurrencyLimited {
						t.Fatal(op, v.Outcome)
					}
				}
				waiting[i].place.Leave(now)
				book.giveBack(waiting[i].charge)
				waiting = slices.Delete(waiting, i, i+1)
			}
			least, most := book.left(s.Now())
			if left := s.left(of); left < least || left > most {
				t.Fatalf("%+v of limit %d at %d: %d tokens left, want between %d and %d", l, which, s.Now(), left, least, most)
			}
		}
	})
}
