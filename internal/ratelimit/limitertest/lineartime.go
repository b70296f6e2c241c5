package limitertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"agentgw/internal/ratelimit"
)

// timed is an operation on a tenant at a time: an admission, or the release of its
// slot. Between crowds of them time passes, and never while one is under way, so
// that a limiter with a clock of its own knows the same times.
type timed struct {
	op  string
	now int64
}

// standing is the naive account of a tenant: when its calls were admitted, and how
// many run.
type standing struct {
	bucket history
	inUse  int64
}

func (s standing) equal(o standing) bool {
	return s.inUse == o.inUse && slices.Equal(s.bucket.times, o.bucket.times)
}

// inTimeModel tells what one call after the other is answered. It knows no
// theoretical arrival time: a wait is true if the account would admit a call then,
// and no sooner.
func inTimeModel(l ratelimit.Limit, most int64, step time.Duration) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return standing{bucket: history{limit: l}} },
		Equal: func(a, b any) bool { return a.(standing).equal(b.(standing)) },
		Step: func(at, input, output any) (bool, any) {
			s, in, out := at.(standing), input.(timed), output.(answer)
			switch {
			case in.op == "release":
				s.inUse--
				return true, s
			case !s.bucket.admits(in.now):
				then := in.now + int64(out.wait)
				return out.outcome == ratelimit.RateLimited && s.bucket.admits(then) && !s.bucket.admits(then-int64(step)), s
			case s.inUse == most:
				return out.outcome == ratelimit.ConcurrencyLimited, s
			}
			s.bucket.times = slices.Clone(s.bucket.times)
			s.bucket.add(in.now)
			s.inUse++
			return out.outcome == ratelimit.Admitted, s
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprint(in, out) },
	}
}

// aTenantIsLinearizableInTime: crowds of admissions and releases, with time in
// between, look as if they had come one after the other.
func aTenantIsLinearizableInTime(t *testing.T, make Maker) {
	random := rand.New(rand.NewPCG(1, 2))
	for range scaled(2_000) {
		s := make(t)
		l := ratelimit.Limit{Interval: 10 * ms * (1 + random.Int64N(5)), Burst: 1 + random.Int64N(6)}
		const most = 3
		a := ratelimit.Admission{Tenant: tenant("t", l, most), Service: ratelimit.NewService("s", 0)}
		var tick atomic.Int64
		var mu sync.Mutex
		var done []porcupine.Operation
		for range 4 {
			now := s.Now()
			var crowd sync.WaitGroup
			for client := range 6 {
				stays := random.IntN(4) == 0
				crowd.Go(func() {
					record := func(op string, f func() answer) {
						from := tick.Add(1)
						out := f()
						to := tick.Add(1)
						mu.Lock()
						defer mu.Unlock()
						done = append(done, porcupine.Operation{ClientId: client, Input: timed{op, now}, Call: from, Output: out, Return: to})
					}
					var ticket ratelimit.Ticket
					var v ratelimit.Verdict
					record("admit", func() answer {
						ticket, v = s.admit(a)
						return answer{v.Outcome, v.Wait}
					})
					if v.Outcome == ratelimit.Admitted && !stays {
						record("release", func() answer { ticket.Release(); return answer{} })
					}
				})
			}
			crowd.Wait()
			s.Advance(time.Duration(ms * random.Int64N(60)))
		}
		if res := porcupine.CheckOperationsTimeout(inTimeModel(l, most, s.step()), done, time.Minute); res != porcupine.Ok {
			t.Fatalf("%v under %+v: %v", res, l, done)
		}
	}
}
