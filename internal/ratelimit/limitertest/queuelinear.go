package limitertest

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"

	"agentgw/internal/ratelimit"
)

// queueOp is what one client does, which has at most one call at a time.
type queueOp struct {
	op     string // enter, release, end, leave
	client int8
}

// queueState is the slots of a process and who waits for them: clients of one tenant,
// or of two that take turns.
type queueState struct {
	free    int8
	n       int8
	waiting [8]int8 // clients, the first n, in the order in which they came
	granted uint8   // a bit per client that waited and has its slot
	passes  [2]int8 // of the tenants, in slots that each was given
	served  int8
}

// serve gives free slots to those whose turn it is.
func (s queueState) serve(tenants int8) queueState {
	for s.free > 0 && s.n > 0 {
		next := int8(0)
		for i := range s.n {
			if s.passes[s.waiting[i]%tenants] < s.passes[s.waiting[next]%tenants] {
				next = i
			}
		}
		client := s.waiting[next]
		s.served = s.passes[client%tenants]
		s.passes[client%tenants]++
		s.granted |= 1 << client
		s.free--
		s = s.without(client)
	}
	return s
}

func (s queueState) without(client int8) queueState {
	var left queueState
	for _, c := range s.waiting[:s.n] {
		if c != client {
			left.waiting[left.n] = c
			left.n++
		}
	}
	s.waiting, s.n = left.waiting, left.n
	return s
}

func (s queueState) waits(tenant, tenants int8) bool {
	for _, c := range s.waiting[:s.n] {
		if c%tenants == tenant {
			return true
		}
	}
	return false
}

func queueModel(slots, tenants int8) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return queueState{free: slots} },
		Step: func(at, input, output any) (bool, any) {
			s, in, out := at.(queueState), input.(queueOp), output.(ratelimit.Outcome)
			bit := uint8(1) << in.client
			switch in.op {
			case "enter":
				if s.free > 0 {
					s.free--
					return out == ratelimit.Admitted, s
				}
				if t := in.client % tenants; !s.waits(t, tenants) {
					s.passes[t] = max(s.passes[t], s.served)
				}
				s.waiting[s.n] = in.client
				s.n++
				return out == ratelimit.Queued, s
			case "release":
				s.free++
				return true, s.serve(tenants)
			case "end":
				if s.granted&bit != 0 {
					s.granted &^= bit
					return out == ratelimit.Admitted, s
				}
				return out == ratelimit.ConcurrencyLimited, s.without(in.client)
			default: // leave
				if s.granted&bit != 0 {
					s.granted &^= bit
					s.free++
					return true, s.serve(tenants)
				}
				return true, s.without(in.client)
			}
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprint(in, out) },
	}
}

// aQueueIsLinearizable: concurrent calls that come, wait, give up, leave and end look
// as if they had done so one after the other, so that nobody is overlooked and nobody
// overtakes, not in the instant between a slot that comes back and who gets it either.
func aQueueIsLinearizable(t *testing.T, make Maker) {
	for _, c := range []struct{ slots, tenants int8 }{{2, 1}, {1, 1}, {1, 2}} {
		for range scaled(5_000) {
			s := make(t).under(int64(c.slots))
			linearly(t, 5, queueModel(c.slots, c.tenants), func(id, step int, do func(any, func() any)) {
				client := int8(id)
				a := ratelimit.Admission{Tenant: tenant(fmt.Sprint(client%c.tenants), ratelimit.Limit{}, 0), Service: ratelimit.NewService("s", 0)}
				var ticket ratelimit.Ticket
				var p *ratelimit.Place
				outcome := func(op string, f func() ratelimit.Outcome) (got ratelimit.Outcome) {
					do(queueOp{op, client}, func() any { got = f(); return got })
					return got
				}
				got := outcome("enter", func() ratelimit.Outcome {
					var v ratelimit.Verdict
					ticket, p, v = s.enter(a)
					return v.Outcome
				})
				if got == ratelimit.Queued && (id+step)%3 == 0 {
					outcome("leave", func() ratelimit.Outcome { p.Leave(s.Now()); return 0 })
					return
				}
				if got == ratelimit.Queued {
					got = outcome("end", func() ratelimit.Outcome {
						var v ratelimit.Verdict
						ticket, v = p.End(s.Now())
						return v.Outcome
					})
				}
				if got == ratelimit.Admitted {
					outcome("release", func() ratelimit.Outcome { ticket.Release(); return 0 })
				}
			})
		}
	}
}
