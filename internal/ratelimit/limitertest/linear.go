package limitertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"agentgw/internal/ratelimit"
)

// Time stands still here, so a bucket is a counter; what is checked is that
// concurrent operations look as if they had happened one after the other.

type operation struct {
	op    string // take | admit, release
	first bool   // of release: not done for this ticket before
}

// answer is what an operation said. A refusal of rate tells its wait, which while
// time stands still is one interval: a wait of an older state would not be.
type answer struct {
	outcome ratelimit.Outcome
	wait    time.Duration
}

type state struct {
	tokens, slots int64
	interval      time.Duration
}

func linearModel(start state) porcupine.Model {
	dry := answer{ratelimit.RateLimited, start.interval}
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(at, input, output any) (bool, any) {
			s, in, out := at.(state), input.(operation), output.(answer)
			switch in.op {
			case "release":
				if in.first {
					s.slots++
				}
				return true, s
			case "take":
				if s.tokens == 0 {
					return out == dry, s
				}
				s.tokens--
				return out.outcome == ratelimit.Admitted, s
			default: // admit
				switch {
				case s.tokens == 0:
					return out == dry, s
				case s.slots == 0:
					return out.outcome == ratelimit.ConcurrencyLimited, s
				}
				s.tokens--
				s.slots--
				return out.outcome == ratelimit.Admitted, s
			}
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprint(in, out) },
	}
}

// linear is linearly for the operations of buckets and slots.
func linear(t *testing.T, model porcupine.Model, client func(id, step int, do func(operation, func() answer))) {
	t.Helper()
	linearly(t, 8, model, func(id, step int, do func(any, func() any)) {
		client(id, step, func(in operation, f func() answer) { do(in, func() any { return f() }) })
	})
}

// linearly runs so many goroutines and checks what each was told, in a logical time.
func linearly(t *testing.T, clients int, model porcupine.Model, client func(id, step int, do func(any, func() any))) {
	t.Helper()
	var tick atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for g := range clients {
		wg.Go(func() {
			for step := range 3 {
				client(g, step, func(in any, f func() any) {
					from := tick.Add(1)
					out := f()
					to := tick.Add(1)
					mu.Lock()
					history = append(history, porcupine.Operation{ClientId: g, Input: in, Call: from, Output: out, Return: to})
					mu.Unlock()
				})
			}
		})
	}
	wg.Wait()
	if res := porcupine.CheckOperationsTimeout(model, history, time.Minute); res != porcupine.Ok {
		t.Fatalf("%v: %v", res, history)
	}
}

func aTenantIsLinearizable(t *testing.T, make Maker) {
	l := ratelimit.Limit{Interval: second, Burst: 14}
	for range scaled(10_000) {
		s := make(t)
		a := ratelimit.Admission{Tenant: tenant("t", l, 2), Service: ratelimit.NewService("s", 0)}
		linear(t, linearModel(state{14, 2, time.Second}), func(_, _ int, do func(operation, func() answer)) {
			var ticket ratelimit.Ticket
			admitted := false
			do(operation{op: "admit"}, func() answer {
				var v ratelimit.Verdict
				ticket, v = s.admit(a)
				admitted = v.Outcome == ratelimit.Admitted
				return answer{v.Outcome, v.Wait}
			})
			if admitted {
				release := func() answer { ticket.Release(); return answer{} }
				do(operation{op: "release", first: true}, release)
				do(operation{op: "release"}, release)
			}
		})
	}
}

func (s Subject) ask(k *ratelimit.Ref) answer {
	v := s.Take(k, s.Now()).Verdict()
	return answer{v.Outcome, v.Wait}
}

// aKeyIsLinearizable, also where a bucket that is known to be drained refuses
// without more ado: every other call is one that is refused a slot, and so gives
// back the token that it took.
func aKeyIsLinearizable(t *testing.T, make Maker) {
	k := ratelimit.Limit{Interval: second, Burst: 4}
	for range scaled(10_000) {
		s := make(t)
		k, nowhere := key("k", k), ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 1), Service: ratelimit.NewService("s", 0)}
		if _, v := s.admit(nowhere); v.Outcome != ratelimit.Admitted {
			t.Fatal(v)
		}
		linear(t, refundModel(state{tokens: 4, interval: time.Second}), func(id, step int, do func(operation, func() answer)) {
			var c ratelimit.Charge
			do(operation{op: "take"}, func() answer {
				c = s.Take(k, s.Now())
				v := c.Verdict()
				return answer{v.Outcome, v.Wait}
			})
			if !c.Refused() && (id+step)%2 == 0 {
				do(operation{op: "refund"}, func() answer {
					_, v := s.Admit(c, nowhere, s.Now())
					return answer{v.Outcome, 0}
				})
			}
		})
	}
}

// refundModel is linearModel with a refusal that gives a token back.
func refundModel(start state) porcupine.Model {
	model := linearModel(start)
	plain := model.Step
	model.Step = func(at, input, output any) (bool, any) {
		if s := at.(state); input.(operation).op == "refund" {
			s.tokens++
			return output.(answer).outcome == ratelimit.ConcurrencyLimited, s
		}
		return plain(at, input, output)
	}
	return model
}

// aKeyIsLinearizableAcrossLimits: calls decided by two views, whose rates differ,
// share one balance.
func aKeyIsLinearizableAcrossLimits(t *testing.T, make Maker) {
	for range scaled(10_000) {
		s := make(t)
		views := []*ratelimit.Ref{
			key("k", ratelimit.Limit{Interval: second, Burst: 5}), key("k", ratelimit.Limit{Interval: 3 * second, Burst: 5}),
		}
		linear(t, linearModel(state{tokens: 5}), func(id, step int, do func(operation, func() answer)) {
			view := (id + step) % 2
			do(operation{op: "take"}, func() answer {
				a := s.ask(views[view])
				if a.outcome == ratelimit.RateLimited && a.wait != time.Duration(1+2*view)*time.Second {
					t.Errorf("under limit %d: wait %v", view, a.wait)
				}
				return answer{outcome: a.outcome}
			})
		})
	}
}
