package ratelimit

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const second = int64(time.Second)

// call is one whole call: the key's token, then everything else.
type call struct {
	key      string
	keyLimit Limit
	admission
}

func (l *Local) call(c call, now int64) (Ticket, Verdict) {
	charge, v := l.take(c.Table, KindKey, c.key, c.keyLimit, now)
	if v.Outcome != Admitted {
		return Ticket{}, v
	}
	c.Charge = charge
	return l.admit(c.admission, now)
}

func remaining(l *Local, kind Kind, partition string, limit Limit, now int64) int64 {
	return l.peek(Registered, kind, partition, limit, now).Remaining
}

// TestLimitsThatAreOffKeepNothing, nor does looking at one that is on.
func TestLimitsThatAreOffKeepNothing(t *testing.T) {
	l := NewLocal(Options{})
	for range 1000 {
		if _, v := l.call(call{key: "k", admission: admission{Tenant: "t", Service: "s"}}, 0); v.Outcome != Admitted || v.n != 0 {
			t.Fatalf("%+v", v)
		}
	}
	l.peek(Registered, KindKey, "k", Limit{second, 10}, 5)
	if st := l.Stats(); st.Process.InFlight != 1000 || st.Tables[Registered].Entries != 1 {
		t.Errorf("%+v", st)
	}
}

func TestBlock(t *testing.T) {
	l := NewLocal(Options{})
	a := admission{Tenant: "t", TenantLimit: Limit{second, 1}, Service: "s"}
	key := Limit{second, 5}
	l.Block(Registered, "t")
	l.Block(Registered, "u")
	_, v := l.call(call{key: "k", keyLimit: key, admission: a}, 0)
	if v.Outcome != Blocked || v.Limit != KindTenant || v.Wait != 0 || !v.Never || fmt.Sprint(slices.Collect(v.Violated())) != "[tenant]" || remaining(l, KindKey, "k", key, 0) != 4 || remaining(l, KindTenant, "t", a.TenantLimit, 0) != 1 {
		t.Errorf("%+v", v)
	}
	if _, v := l.admit(admission{Table: Callers, Tenant: "t", Service: "s"}, 0); v.Outcome != Admitted {
		t.Errorf("a tenant of the same name in another table: %v", v.Outcome)
	}
	l.Unblock(Registered, "t")
	if _, v := l.admit(a, 0); v.Outcome != Admitted || !l.Blocked(Registered, "u") {
		t.Errorf("after unblock: %v", v.Outcome)
	}
	l.Unblock(Registered, "u")
	if l.blocked.Load() != nil {
		t.Error("an empty set is kept")
	}
}

// TestConcurrencyRefusalRestoresEveryToken: of key, tenant and the key at the
// service, to the nanosecond, from full and from part of a token, whichever cap
// refuses.
func TestConcurrencyRefusalRestoresEveryToken(t *testing.T) {
	for _, which := range []Kind{KindTenantSlots, KindServiceSlots, KindProcessSlots} {
		for _, spent := range []int{0, 2} {
			c := call{key: "k", keyLimit: Limit{second, 5}, admission: admission{
				Tenant: "t", TenantLimit: Limit{3 * second, 5},
				Service: "s", ServiceBucket: "k/s", ServiceLimit: Limit{7 * second, 5},
			}}
			switch which {
			case KindTenantSlots:
				c.TenantSlots = 1
			case KindServiceSlots:
				c.ServiceSlots = 1
			case KindProcessSlots:
				c.Process = 1
			}
			l := NewLocal(Options{})
			for range spent {
				ticket, v := l.call(c, 0)
				if v.Outcome != Admitted {
					t.Fatal(v.Outcome)
				}
				ticket.Release()
			}
			holder := c.admission
			holder.TenantLimit, holder.ServiceLimit = Limit{}, Limit{}
			l.admit(holder, 0)
			levels := func(now int64) [3]Reading {
				return [3]Reading{
					l.peek(Registered, KindKey, "k", c.keyLimit, now),
					l.peek(Registered, KindTenant, "t", c.TenantLimit, now),
					l.peek(Registered, KindService, "k/s", c.ServiceLimit, now),
				}
			}
			const now = second/2 + 1
			before := levels(now)
			if _, v := l.call(c, now); v.Outcome != ConcurrencyLimited || v.Limit != which {
				t.Fatalf("%v by %v", v.Outcome, v.Limit)
			}
			if after := levels(now); after != before {
				t.Errorf("kind %d, %d spent: %+v became %+v", which, spent, before, after)
			}
		}
	}
}
