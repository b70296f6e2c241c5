package ratelimit

import (
	"fmt"
	"slices"
	"testing"
)

// TestOverflowEntry: with a full table in which all owe, the newcomers share one
// bucket and one cap; a warning a minute; and when one gets an entry of its own,
// it gets no second burst and no second cap with it.
func TestOverflowEntry(t *testing.T) {
	var warned []string
	l := NewLocal(Options{TableSize: 2, Warn: func(table string) { warned = append(warned, table) }})
	slow := Limit{100 * second, 3}
	drain := func(names ...string) {
		for _, n := range names {
			for range 3 {
				l.take(Registered, KindKey, n, slow, 0)
			}
		}
	}
	drain("a", "b")
	admitted := 0
	for i := range 9 {
		if _, v := l.take(Registered, KindKey, fmt.Sprint("new-", i%3), slow, second); v.Outcome == Admitted {
			admitted++
		}
	}
	if st := tableStats(l); admitted != 3 || st.Entries != 2 || st.Overflowed != 9 {
		t.Errorf("%d admitted, want the burst of one; %+v", admitted, st)
	}
	if _, v := l.take(Registered, KindTenant, "t", slow, second); v.Outcome != Admitted {
		t.Error("a tenant and a key share a bucket: a call would be charged twice")
	}
	if !slices.Equal(warned, []string{"registered"}) {
		t.Errorf("warned %v", warned)
	}
	ref := NewRef(Registered, KindKey, "new-0", slow)
	l.Take(ref, 2*second)
	l.take(Registered, KindKey, "new-9", slow, 61*second-1)
	if len(warned) != 1 {
		t.Errorf("warned %v within a minute", warned)
	}
	l.take(Registered, KindKey, "new-9", slow, 61*second)
	if len(warned) != 2 {
		t.Errorf("warned %v after a minute", warned)
	}
	// At 300 s a and b are full again; the shared bucket is a second behind.
	if l.Take(ref, 300*second).Refused() {
		t.Error("refused although both buckets have tokens")
	}
	if l.tables[Registered].peek(id{KindKey, "new-0"}) == nil {
		t.Fatal("new-0 has no entry of its own although there is room")
	}
	if r := l.peek(Registered, KindKey, "new-0", slow, 300*second); r.Remaining != 1 {
		t.Errorf("new-0 has %d left, want what the shared bucket had less one", r.Remaining)
	}
	var seen []Entry
	l.Each(Registered, KindKey, 100*second, func(e Entry) bool { seen = append(seen, e); return true })
	if last := seen[len(seen)-1]; !last.Overflow || last.Partition != "overflow" {
		t.Errorf("operators do not see it: %+v", seen)
	}
}

func TestOverflowSlots(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	l.take(Registered, KindKey, "a", Limit{100 * second, 1}, 0)
	a := func(tenant string) admission { return admission{Tenant: tenant, TenantSlots: 2, Service: "s"} }
	first, _ := l.admit(a("t"), 0)
	other, _ := l.admit(a("u"), 0)
	if _, v := l.admit(a("t"), 0); v.Outcome != ConcurrencyLimited {
		t.Errorf("%v, want one cap for all that share the entry", v.Outcome)
	}
	// There is room now, but t holds a slot of the shared entry.
	other.Release()
	second, v := l.admit(a("t"), 101*second)
	if v.Outcome != Admitted || l.tables[Registered].peek(id{KindTenant, "t"}) != nil {
		t.Errorf("%v: t has a second cap", v.Outcome)
	}
	if _, v := l.admit(a("t"), 102*1e9); v.Outcome != ConcurrencyLimited {
		t.Errorf("%v: over the cap", v.Outcome)
	}
	if _, v := l.admit(a("v"), 102*1e9); v.Outcome != Admitted || l.tables[Registered].peek(id{KindTenant, "v"}) == nil {
		t.Errorf("%v: v is held up by others' slots although there is room", v.Outcome)
	}
	first.Release()
	second.Release()
	if _, v := l.admit(a("t"), 103*1e9); v.Outcome != Admitted || l.tables[Registered].peek(id{KindTenant, "t"}) == nil {
		t.Errorf("%v: t has no entry of its own", v.Outcome)
	}
}
