package bench

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"agentgw/internal/ratelimit"

	"github.com/jonboulle/clockwork"
)

// TestTableOfParts prints where the nanoseconds of an admission go: what its parts
// take on this machine, each alone, and what is left when they are taken away.
func TestTableOfParts(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	const rounds, n = 9, 200_000
	var mu sync.Mutex
	clock := ratelimit.NewClock(clockwork.NewRealClock())
	near, far := ring(8<<20), ring(512<<20)
	one, some, many := newOurs(1), newOurs(10_000), newOurs(*most)
	for l, keys := range map[*ours]int{one: 1, some: 10_000, many: *most} {
		warm(l, keys)
	}
	parts := []struct {
		name string
		run  func(i int)
		took []float64
	}{
		{name: "the loop that drives, by an interface", run: driveOf(nothing{}, 1)},
		{name: "a mutex locked and unlocked", run: func(int) { mu.Lock(); mu.Unlock() }},
		{name: "a reading of the clock", run: func(int) { sink = clock.Nanos() }},
		{name: "a line of memory, of 8 MiB", run: func(int) { near.next() }},
		{name: "a line of memory, of 512 MiB", run: func(int) { far.next() }},
		{name: "an admission, of 1 key", run: driveOf(one, 1)},
		{name: "of 10,000 keys", run: driveOf(some, 10_000)},
		{name: fmt.Sprintf("of %d keys", *most), run: driveOf(many, *most)},
	}
	for range rounds {
		for i := range parts {
			p := &parts[i]
			took := cpuTime(t, func() {
				for i := range n {
					p.run(i)
				}
			})
			p.took = append(p.took, float64(took.Nanoseconds())/n)
		}
	}
	median := func(i int) float64 { return slices.Sorted(slices.Values(parts[i].took))[rounds/2] }
	fmt.Println("| part | ns |\n|---|---|")
	for i, p := range parts {
		fmt.Printf("| %s | %.1f |\n", p.name, median(i))
	}
	loop, lock, small, large := median(0), median(1), median(3), median(4)
	a, b, c := median(5), median(6), median(7)
	fmt.Println("\n| an admission | ns |\n|---|---|")
	fmt.Printf("| the loop | %.0f |\n", loop)
	fmt.Printf("| 4 locks: key, tenant, pair, and tenant again at the release | %.0f |\n", 4*lock)
	fmt.Printf("| deciding, the verdict with its four readings, the ticket | %.0f |\n", a-loop-4*lock)
	fmt.Printf("| waiting for memory with 10,000 keys, %.1f lines one after the other | %.0f |\n", (b-a)/small, b-a)
	fmt.Printf("| waiting for memory with %d keys, %.1f lines one after the other | %.0f |\n", *most, (c-a)/large, c-a)
}

var sink int64

// driveOf is a call of l, as drive makes it.
func driveOf(l limiter, keys int) func(i int) {
	return func(i int) { l.call(scatter(i, keys), int64(i)*10) }
}

// nothing admits.
type nothing struct{}

func (nothing) call(int, int64) bool   { return true }
func (nothing) denied(int, int64) bool { return true }

// chain is lines of memory each of which tells where the next is, in an order
// that the processor cannot foresee.
type chain struct {
	lines []struct {
		after int32
		_     [60]byte
	}
	at int32
}

func ring(bytes int) *chain {
	c := new(chain)
	n := bytes / 64
	c.lines = append(c.lines, make([]struct {
		after int32
		_     [60]byte
	}, n)...)
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	random := uint64(1)
	for i := n - 1; i > 0; i-- { // Sattolo: one ring of all
		random = random*6364136223846793005 + 1442695040888963407
		j := int((random >> 33) % uint64(i))
		order[i], order[j] = order[j], order[i]
	}
	for i := range order {
		c.lines[i].after = order[i]
	}
	return c
}

func (c *chain) next() { c.at = c.lines[c.at].after }
