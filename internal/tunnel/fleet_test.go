package tunnel_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/tunnel"
)

// kept is a lender in memory: of one caller.
type kept struct {
	mu          sync.Mutex
	now         int64
	began, used int64
	asked       int
	away        bool
	parts       int64
}

var errAway = errors.New("away")

func (k *kept) Lend(_ string, l tunnel.Limit, want int64) (tunnel.Loan, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	if k.away {
		return tunnel.Loan{}, errAway
	}
	if k.used == 0 || k.now-k.began >= int64(l.Window) {
		k.began, k.used = k.now, 0
	}
	left, lent := l.Bytes-k.used, int64(0)
	if want > 0 && (left > 0 || !l.Cut) {
		chunk := int64(1 << 20)
		if left > 0 {
			chunk = min(chunk, left/4)
		}
		lent = max(want, chunk)
		k.used += lent
	}
	of := tunnel.Loan{Lent: lent, Used: k.used, Began: k.began}
	if k.used > 0 {
		of.Left = l.Window - time.Duration(k.now-k.began)
	}
	return of, nil
}

func (k *kept) Repay(_ string, _ tunnel.Limit, of tunnel.Loan, n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of.Began == k.began {
		k.used = max(0, k.used-n)
	}
}

func (k *kept) Part(l tunnel.Limit) tunnel.Limit {
	l.Bytes /= k.parts
	return l
}

func fleets(k *kept, n int) (list []*tunnel.Fleet) {
	for range n {
		f := tunnel.NewFleet(k, tunnel.NewBudgets(10, nil))
		f.Open("a")
		list = append(list, f)
	}
	return list
}

// TestTunnelsOfSeveralProcesses spend at once: what they carry together is the limit, more by
// one piece of each at most, and less by what others were lent at most, which is there again
// when they close; and few pieces ask.
func TestTunnelsOfSeveralProcesses(t *testing.T) {
	const bytes, piece, processes = 4 << 20, 4096, 3
	limit := tunnel.Limit{Bytes: bytes, Window: time.Hour, Cut: true}
	for range 20 {
		k := &kept{now: 1}
		list := fleets(k, processes)
		var carried, pieces atomic.Int64
		carry := func(f *tunnel.Fleet) {
			for {
				n := rand.Int64N(piece) + 1
				lease := f.Spend("a", limit, n, 1)
				if !lease.OK {
					return
				}
				flowed := rand.Int64N(n + 1)
				f.Return("a", lease, n-flowed)
				carried.Add(flowed)
				pieces.Add(1)
			}
		}
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { carry(list[i%processes]) })
		}
		all.Wait()
		// What came back of pieces that were the last is there to be lent.
		for _, f := range list {
			f.Close("a")
		}
		last := fleets(k, 1)[0]
		carry(last)
		last.Close("a")
		if got := carried.Load(); got < bytes-10*piece || got > bytes+(processes+1)*piece {
			t.Fatalf("%d bytes of %d", got, bytes)
		}
		if int64(k.asked)*4 > pieces.Load() {
			t.Fatalf("%d of %d pieces asked", k.asked, pieces.Load())
		}
	}
}

// TestWhatWasLentAndNotUsed is there for others when the last tunnel closes, and in the next
// window it is nothing.
func TestWhatWasLentAndNotUsed(t *testing.T) {
	limit := tunnel.Limit{Bytes: 1 << 20, Window: time.Hour, Cut: true}
	k := &kept{now: 1}
	f := fleets(k, 1)[0]
	f.Open("a") // a second tunnel
	lease := f.Spend("a", limit, 1000, 1)
	if !lease.OK || k.used != 1<<18 {
		t.Fatalf("%+v, %d lent", lease, k.used)
	}
	if got := f.Standing("a", limit, 1); got.Used != 1000 || got.Left != 1<<20-1000 || got.Ends != time.Hour {
		t.Errorf("%+v", got)
	}
	f.Close("a")
	if k.used != 1<<18 {
		t.Errorf("%d counted while a tunnel is open", k.used)
	}
	f.Close("a")
	if k.used != 1000 {
		t.Errorf("%d counted after the last has closed", k.used)
	}
	// A window later.
	f.Open("a")
	f.Spend("a", limit, 1000, 1)
	k.now += int64(time.Hour)
	f.Spend("a", limit, 1000, 1+int64(time.Hour))
	if k.used != 1<<18 || k.began != k.now {
		t.Errorf("%d counted in the next window, which began at %d", k.used, k.began)
	}
	f.Return("a", lease, 1000)
	f.Close("a")
	if k.used != 1000 {
		t.Errorf("what was lent in one window is repaid in the next: %d", k.used)
	}
}

// TestOneThatFinishes runs on beyond the limit, and no other begins.
func TestOneThatFinishes(t *testing.T) {
	limit := tunnel.Limit{Bytes: 1000, Window: time.Hour}
	k := &kept{now: 1}
	f := fleets(k, 1)[0]
	for range 10 {
		if !f.Spend("a", limit, 300, 1).OK {
			t.Fatal("it is cut")
		}
	}
	if got := fleets(k, 1)[0].Standing("a", limit, 1); got.Exhausted() != time.Hour {
		t.Errorf("another process: %+v", got)
	}
}

// TestAProcessThatIsAlone goes by its part, of which what flowed here before is used; and by
// what is known of all, while that window lasts.
func TestAProcessThatIsAlone(t *testing.T) {
	limit := tunnel.Limit{Bytes: 8000, Window: time.Hour, Cut: true}
	k := &kept{now: 1, parts: 2}
	f := fleets(k, 1)[0]
	f.Spend("a", limit, 1000, 1) // and as much more is lent
	k.away = true
	flowed := int64(1000)
	for f.Spend("a", limit, 500, 1).OK {
		flowed += 500
	}
	if flowed != 4000 || !f.Exhausted("a", limit, 1) || f.Standing("a", limit, 1).Exhausted() != time.Hour {
		t.Errorf("%d bytes of a part of 4000, %+v", flowed, f.Standing("a", limit, 1))
	}
	k.away = false
	if !f.Spend("a", limit, 500, 1).OK {
		t.Error("nothing more when the lender is back")
	}
	k.used = 9000 // by others
	f.Spend("a", limit, 5000, 1)
	k.away = true
	if f.Spend("a", limit, 1, 1).OK || !f.Exhausted("a", limit, 1) {
		t.Error("alone, it forgets that others have used up all")
	}
}
