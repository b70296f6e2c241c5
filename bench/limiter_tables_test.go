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
}

// TestTableOfInserts prints what a new key costs a full table of which the older
// half has calls in flight, in processor time.
func TestTableOfInserts(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	const size, inserts = 100_000, 2000
	var times [2][]time.Duration

	limit := must(ratelimit.NewLimit(1e9, 1))
	l := ratelimit.NewLocal(ratelimit.Options{TableSize: size / 2})
	var open []ratelimit.Ticket
	s := ratelimit.NewService("s", 0)
	for i := range size / 2 {
		ticket, _ := l.Admit(ratelimit.Charge{}, ratelimit.Admission{
			Tenant: ratelimit.NewTenant(ratelimit.Registered, fmt.Sprint("busy-", i), limit, 0), Service: s}, 0)
		open = append(open, ticket)
	}
	for i := range size / 2 {
		l.Take(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, fmt.Sprint("idle-", i), limit), int64(i))
	}
	for i := range inserts {
		r := ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, fmt.Sprint("new-", i), limit)
		times[0] = append(times[0], cpuTime(t, func() { l.Take(r, int64(size+i)) }))
	}
	runtime.KeepAlive(open)

	// golang-lru knows no pins: whoever must not go is put to the front again.
	lru, _ := simplelru.NewLRU[string, *floatBucket](size+1, nil)
	for i := range size {
		b := &floatBucket{}
		if i < size/2 {
			b.inFlight = 1
		}
		lru.Add(fmt.Sprint(i), b)
	}
	for i := range inserts {
		name := fmt.Sprint("new-", i)
		times[1] = append(times[1], cpuTime(t, func() {
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
	fmt.Println("| contender | median | 99.9th | worst |\n|---|---|---|---|")
	for i, name := range []string{"agentgw", "golang-lru, rotated"} {
		slices.Sort(times[i])
		fmt.Printf("| %s | %v | %v | %v |\n", name, times[i][inserts/2], times[i][inserts*999/1000], times[i][inserts-1])
	}
}
