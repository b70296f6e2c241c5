package bench

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"agentgw/internal/ratelimit"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// TestTableOfScaling prints how much more two processors do than one, each with tenants
// of its own: the ratio of calls a second, of which 2 is perfect. The load on the
// machine counts here, so it is the best of runs in turn.
func TestTableOfScaling(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	const keys, n, rounds = 1000, 300_000, 15
	fmt.Println("| contender | calls a second on one processor | two | ratio |\n|---|---|---|---|")
	for _, c := range contenders {
		l := c.make(keys)
		warm(l, keys)
		best := [3]float64{}
		for range rounds {
			for workers := 1; workers <= 2; workers++ {
				var wg sync.WaitGroup
				from := time.Now()
				for w := range workers {
					wg.Go(func() {
						// The halves of the keys, which are the halves of the tenants.
						for i := range n {
							l.call(w*keys/2+scatter(i, keys/2), int64(i)*10)
						}
					})
				}
				wg.Wait()
				best[workers] = max(best[workers], float64(workers*n)/time.Since(from).Seconds())
			}
		}
		fmt.Printf("| %s | %.1f M | %.1f M | %.2f |\n", c.name, best[1]/1e6, best[2]/1e6, best[2]/best[1])
	}
}

// TestTableOfMemory prints what a limiter keeps in memory for a key: its bucket, that at a
// service, and a tenth of a tenant.
func TestTableOfMemory(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	const keys = 200_000
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	fmt.Println("| contender | bytes a key | buckets a key | bytes a bucket |\n|---|---|---|---|")
	for _, c := range contenders {
		l := c.make(keys)
		if _, bare := l.(*locks); bare {
			continue
		}
		before := inUse()
		for k := range keys {
			l.call(k, 0)
		}
		perKey := float64(inUse()-before) / keys
		fmt.Printf("| %s | %.0f | 2.1 | %.0f |\n", c.name, perKey, perKey/2.1)
		runtime.KeepAlive(l)
	}
	// What a list of that many takes that can be looked up by a name and a kind, as
	// ours is, and holds nothing: no table over golang-lru is smaller.
	type id struct {
		kind uint8
		name string
	}
	names := newNames(keys)
	before := inUse()
	empty, _ := simplelru.NewLRU[id, *byte](keys, nil)
	for _, name := range names.keys {
		empty.Add(id{1, name}, nil)
	}
	fmt.Printf("| golang-lru with nothing in it | | 1 | %.0f |\n", float64(inUse()-before)/keys)
	runtime.KeepAlive(empty)
	runtime.KeepAlive(names)
}

// TestTableOfInserts prints what a new key costs a full table of which the older
// half has calls in flight, in processor time: medians of rounds, each with tables
// of its own, as one moment of the machine can spoil the worst of a round.
func TestTableOfInserts(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	const rounds, inserts = 5, 2000
	fmt.Println("| contender | median | 99.9th | worst | worst, times ours |\n|---|---|---|---|---|")
	var ours time.Duration
	for _, c := range []struct {
		name string
		run  func(t *testing.T, inserts int) []time.Duration
	}{{"agentgw", insertOurs}, {"golang-lru, rotated", insertLRU}} {
		var median, most, worst []time.Duration
		for range rounds {
			times := c.run(t, inserts)
			slices.Sort(times)
			median, most, worst = append(median, times[inserts/2]), append(most, times[inserts*999/1000]), append(worst, times[inserts-1])
		}
		for _, list := range [][]time.Duration{median, most, worst} {
			slices.Sort(list)
		}
		if ours == 0 {
			ours = worst[rounds/2]
		}
		fmt.Printf("| %s | %v | %v | %v | %.1f |\n", c.name, median[rounds/2], most[rounds/2], worst[rounds/2], float64(worst[rounds/2])/float64(ours))
	}
}

const fullTable = 100_000

func insertOurs(t *testing.T, inserts int) (times []time.Duration) {
	limit := must(ratelimit.NewLimit(1e9, 1))
	l := ratelimit.NewLocal(ratelimit.Options{TableSize: fullTable / 2})
	var open []ratelimit.Ticket
	s := ratelimit.NewService("s", 0)
	for i := range fullTable / 2 {
		ticket, _ := l.Admit(ratelimit.Charge{}, ratelimit.Admission{
			Tenant: ratelimit.NewTenant(ratelimit.Registered, fmt.Sprint("busy-", i), limit, 0), Service: s}, 0)
		open = append(open, ticket)
	}
	for i := range fullTable / 2 {
		l.Take(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, fmt.Sprint("idle-", i), limit), int64(i))
	}
	runtime.GC()
	for i := range inserts {
		r := ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, fmt.Sprint("new-", i), limit)
		times = append(times, cpuTime(t, func() { l.Take(r, int64(fullTable+i)) }))
	}
	runtime.KeepAlive(open)
	return times
}

// insertLRU: golang-lru knows no pins, so whoever must not go is put to the front
// again.
func insertLRU(t *testing.T, inserts int) (times []time.Duration) {
	lru, _ := simplelru.NewLRU[string, *floatBucket](fullTable+1, nil)
	for i := range fullTable {
		b := &floatBucket{}
		if i < fullTable/2 {
			b.inFlight = 1
		}
		lru.Add(fmt.Sprint(i), b)
	}
	runtime.GC()
	for i := range inserts {
		name := fmt.Sprint("new-", i)
		times = append(times, cpuTime(t, func() {
			for {
				oldest, b, _ := lru.GetOldest()
				if b.inFlight == 0 {
					lru.Remove(oldest)
					break
				}
				lru.Get(oldest)
			}
			lru.Add(name, &floatBucket{})
		}))
	}
	return times
}
