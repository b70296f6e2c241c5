package ratelimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The clock stands still, so a bucket is a counter; what is checked is that
// concurrent operations look as if they had happened one after the other.

type operation struct {
	op    string // take, refund | admit, release
	first bool   // refund, release: not done for this charge, ticket before
}

type account struct{ tokens, slots int64 }

func linearModel(start account) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, output any) (bool, any) {
			s, in := state.(account), input.(operation)
			switch in.op {
			case "refund":
				if in.first {
					s.tokens++
				}
				return true, s
			case "release":
				if in.first {
					s.slots++
				}
				return true, s
			case "take":
				if s.tokens == 0 {
					return output == RateLimited, s
				}
				s.tokens--
				return output == Admitted, s
			default:
				switch {
				case s.tokens == 0:
					return output == RateLimited, s
				case s.slots == 0:
					return output == ConcurrencyLimited, s
				}
				s.tokens--
				s.slots--
				return output == Admitted, s
			}
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprint(in, out) },
	}
}

// record runs 8 goroutines and returns what each did, in a logical time.
func record(client func(id, step int, do func(in operation, f func() Outcome))) []porcupine.Operation {
	var tick atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for step := range 3 {
				client(g, step, func(in operation, f func() Outcome) {
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
	return history
}

func checkLinear(t *testing.T, model porcupine.Model, history []porcupine.Operation) {
	t.Helper()
	if res := porcupine.CheckOperationsTimeout(model, history, 10*time.Second); res != porcupine.Ok {
		t.Fatalf("%v: %v", res, history)
	}
}

func TestTenantIsLinearizable(t *testing.T) {
	for range scaled(5_000) {
		l := NewLocal(Options{})
		a := admission{Tenant: "t", TenantLimit: Limit{second, 14}, TenantSlots: 2, Service: "s"}
		checkLinear(t, linearModel(account{tokens: 14, slots: 2}), record(func(_, _ int, do func(operation, func() Outcome)) {
			var ticket Ticket
			admitted := false
			do(operation{op: "admit"}, func() Outcome {
				var v Verdict
				ticket, v = l.admit(a, 5)
				admitted = v.Outcome == Admitted
				return v.Outcome
			})
			if admitted {
				do(operation{op: "release", first: true}, func() Outcome { ticket.Release(); return Admitted })
				do(operation{op: "release"}, func() Outcome { ticket.Release(); return Admitted })
			}
		}))
	}
}

func TestKeyIsLinearizable(t *testing.T) {
	for range scaled(5_000) {
		l := NewLocal(Options{})
		checkLinear(t, linearModel(account{tokens: 5}), record(func(id, step int, do func(operation, func() Outcome)) {
			var c Charge
			admitted := false
			do(operation{op: "take"}, func() Outcome {
				var v Verdict
				c, v = l.take(Registered, KindKey, "k", Limit{second, 5}, 5)
				admitted = v.Outcome == Admitted
				return v.Outcome
			})
			if admitted && (id+step)%2 == 0 {
				do(operation{op: "refund", first: true}, func() Outcome { c.refund(5); return Admitted })
				do(operation{op: "refund"}, func() Outcome { c.refund(5); return Admitted })
			}
		}))
	}
}
