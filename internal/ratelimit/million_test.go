package ratelimit

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestAMillionCallers, distinct strangers, come to a table of 10,000 in which 5,000
// have calls in flight: slowly, so that those before have paid what they owe, and
// in floods, in which the table is full of debtors. (A twentieth of them, without
// DRILLS=full.) The memory stays flat; of those who drained their bucket, a sample
// with a naive account each, none gets more than had the table no end; the
// registered are told what a limiter without strangers tells them; and operators
// are warned once a minute.
func TestAMillionCallers(t *testing.T) {
	const size, pinned, steps = 10_000, 5_000, 20
	strangers := scaled(1_000_000)
	if strangers < 1_000_000 {
		strangers /= 2
	}
	before := heapInUse() // what other tests have left there
	m := newMillion(t, size)
	m.pin(pinned)
	var heap []uint64 // once the table is full
	for i := range strangers {
		m.pass(i, i/12_500%2 == 1)
		if i%(strangers/steps) == 0 {
			m.holds(size, pinned)
			if m.l.Stats().Tables[Callers].Evicted > size {
				heap = append(heap, heapInUse())
			}
		}
	}
	heap = append(heap, heapInUse())
	m.holds(size, pinned)
	m.unpin()
	least, most := slices.Min(heap), slices.Max(heap)
	if most-least > 1<<20 || most > before+16<<20 {
		t.Errorf("the heap, in KiB at each step: %v", kib(heap))
	}
	st := m.l.Stats().Tables[Callers]
	if m.drains == 0 || m.refused == 0 || m.warnings == 0 || st.Evicted == 0 || st.Overflowed == 0 {
		t.Errorf("nothing was tested: %+v, %d drained, %d came again and were refused, %d warnings", st, m.drains, m.refused, m.warnings)
	}
	t.Logf("%d callers in %v of their time: heap %d to %d KiB in %d looks; %d entries; %d made room for others, %d looks ended at a shared entry; "+
		"%d drained buckets watched, %d more calls of theirs admitted, %d refused, 0 too many; %d calls of registered tenants decided as without strangers; %d warnings in %d minutes with cause",
		strangers, time.Duration(m.now).Round(time.Second), least>>10, most>>10, len(heap), st.Entries, st.Evicted, st.Overflowed, m.drains, m.again, m.refused, m.registered, m.warnings, m.causes)
}

func kib(heap []uint64) (list []uint64) {
	for _, h := range heap {
		list = append(list, h>>10)
	}
	return list
}

// million is the drill: a limiter, another for the registered alone, and the
// callers that are watched.
type million struct {
	t       *testing.T
	l, twin *Local
	now     int64
	limit   Limit
	pins    []Ticket
	watched []history // the last that drained their bucket, by number
	names   []string

	drains, again, refused, registered int
	warnings, causes                   int
	warnedAt, overflowedAt             int64
	overflowed                         int64
}

func newMillion(t *testing.T, size int) *million {
	m := &million{t: t, limit: Limit{20 * second, 3}, warnedAt: -1, overflowedAt: -1, watched: make([]history, 1000), names: make([]string, 1000)}
	m.l = NewLocal(Options{TableSize: size, Warn: func(table string) {
		if table != "callers" {
			t.Errorf("warned of the table of %s", table)
		}
		if m.warnedAt >= 0 && m.now-m.warnedAt < 60*second {
			t.Errorf("warned at %v and at %v", time.Duration(m.warnedAt), time.Duration(m.now))
		}
		m.warnings++
		m.warnedAt = m.now
	}})
	m.twin = NewLocal(Options{TableSize: size})
	return m
}

// pin begins calls in flight that last to the end.
func (m *million) pin(n int) {
	for i := range n {
		ticket, v := m.l.admit(m.held(i), m.now)
		if v.Outcome != Admitted {
			m.t.Fatal(v)
		}
		m.pins = append(m.pins, ticket)
	}
}

func (m *million) held(i int) admission {
	return admission{Table: Callers, Tenant: fmt.Sprint("held-", i), TenantSlots: 1, Service: "s"}
}

// unpin ends them. Until then each had its one slot, and nobody else.
func (m *million) unpin() {
	for i, ticket := range m.pins {
		if _, v := m.l.admit(m.held(i), m.now); v.Outcome != ConcurrencyLimited {
			m.t.Fatalf("%d is in flight, and a second call is %v", i, v.Outcome)
		}
		ticket.Release()
	}
	if st := m.l.Stats(); st.Tables[Callers].Pinned != 0 {
		m.t.Errorf("when all have ended: %+v", st)
	}
	m.l.wantInFlight(m.t, 0)
}

// pass is the arrival of one stranger, in a flood or not. Every fiftieth drains its
// bucket and is watched from then on; one of those comes again, and a registered
// tenant calls.
func (m *million) pass(i int, flood bool) {
	m.now += second / 100
	if flood {
		m.now -= second/100 - second/10_000
	}
	if i%1000 == 0 {
		m.l.Sweep(m.now)
	}
	name := fmt.Sprint("stranger-", i)
	m.ask(name)
	if i%50 == 0 {
		m.drain(name, i/50%len(m.watched))
	}
	if i%10 == 0 {
		m.comesAgain(i / 10 * 7 % len(m.watched))
		m.register(i)
	}
}

// ask takes a token, and notes whether that was cause for a warning.
func (m *million) ask(name string) bool {
	_, v := m.l.take(Callers, KindCaller, name, m.limit, m.now)
	if n := m.l.tables[Callers].overflowed.Load(); n > m.overflowed {
		m.overflowed = n
		if m.warnedAt < 0 || m.now-m.warnedAt >= 60*second {
			m.t.Fatalf("at %v an entry is shared, and the last warning was at %v", time.Duration(m.now), time.Duration(m.warnedAt))
		}
		if m.overflowedAt != m.warnedAt {
			m.overflowedAt = m.warnedAt
			m.causes++
		}
	}
	return v.Outcome == Admitted
}

// drain has a caller take all that it gets, and its account keep it.
func (m *million) drain(name string, place int) {
	m.drains++
	m.names[place] = name
	m.watched[place] = history{limit: m.limit, times: append(m.watched[place].times[:0], m.now)} // what it took first
	for range 4 {
		if m.ask(name) {
			m.watched[place].add(m.now)
		}
	}
	m.conforms(place)
}

// comesAgain has a drained caller try again.
func (m *million) comesAgain(place int) {
	if m.names[place] == "" {
		return
	}
	if !m.ask(m.names[place]) {
		m.refused++
		return
	}
	m.again++
	h := &m.watched[place]
	h.add(m.now)
	m.conforms(place)
	for len(h.times) > 0 && m.now-h.times[0] > int64(m.limit.Window()) {
		h.times = slices.Delete(h.times, 0, 1) // too old to matter
	}
}

func (m *million) conforms(place int) {
	if h := &m.watched[place]; !h.conforms() {
		m.t.Fatalf("a drained bucket came back: %s was admitted at %v under %+v", m.names[place], h.times, m.limit)
	}
}

// register has a registered tenant call, with a call of another that ends later
// now and then.
func (m *million) register(i int) {
	who := fmt.Sprint(i / 10 % 97)
	c := call{key: "key-" + who, keyLimit: Limit{second, 5}, admission: admission{
		Tenant: "tenant-" + who, TenantLimit: Limit{2 * second, 3}, TenantSlots: 1, Service: "r", ServiceBucket: who, ServiceLimit: Limit{3 * second, 4},
	}}
	a, v := m.l.call(c, m.now)
	b, w := m.twin.call(c, m.now)
	if v != w {
		m.t.Fatalf("a registered tenant is told %+v, and without strangers %+v", v, w)
	}
	a.Release()
	b.Release()
	m.registered++
}

// holds checks what is so at every moment.
func (m *million) holds(size, pinned int64) {
	m.t.Helper()
	st := m.l.Stats().Tables[Callers]
	if st.Entries > size+pinned || st.Pinned != pinned || st.UnexpiredEvictions != 0 {
		m.t.Errorf("%+v", st)
	}
}

// heapInUse is the memory in use, of all there is.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // what had a clean-up goes at the second
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
