package redisstore

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
	"agentgw/internal/redistest"
)

// TestWhatGoesTogether: while Redis runs some, as many more go too, and who comes then goes
// when the first are read, all at once. In all that each is answered.
func TestWhatGoesTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, err := Open(Options{URL: server.URL(), Clock: clockwork.NewRealClock(), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	l := store.only
	until := func(what string, holds func() bool) {
		t.Helper()
		for range 3000 {
			if holds() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%s: %d flights of %d jobs, and %d wait", what, l.flights.Load(), l.flying.Load(), len(l.jobs))
	}
	until("it is not asked", func() bool { _, err := store.Ask(ratelimit.Probe()); return err == nil })
	var all sync.WaitGroup
	var answered atomic.Int64
	ask := func() {
		all.Go(func() {
			if _, err := store.Ask(ratelimit.Probe()); err != nil {
				t.Error(err)
			} else {
				answered.Add(1)
			}
		})
	}
	stands := func(flights, flying int64, waits int) func() bool {
		return func() bool { return l.flights.Load() == flights && l.flying.Load() == flying && len(l.jobs) == waits }
	}
	until("what was asked is still under way", stands(0, 0, 0))
	server.Do("CLIENT", "PAUSE", "600000", "WRITE") // what may write waits from now on
	ask()
	until("the first does not go", stands(1, 1, 0))
	ask()
	until("as many do not go", stands(2, 2, 0))
	for i := range 40 {
		ask()
		until("more go", stands(2, 2, i+1))
	}
	server.Do("CLIENT", "UNPAUSE")
	all.Wait()
	if answered.Load() != 42 {
		t.Errorf("%d answered", answered.Load())
	}
	until("they are still under way", stands(0, 0, 0))
}

// TestFewerWait for those under way, so that they go with who comes meanwhile.
func TestFewerWait(t *testing.T) {
	l := &lane{jobs: make(chan *job, 10)}
	for _, c := range []struct {
		flights, flying int64
		waits           int
		due             bool
	}{
		{0, 0, 1, true}, {1, 4, 3, false}, {1, 4, 4, true}, {2, 4, 4, false}, {2, 4, 9, false},
	} {
		for len(l.jobs) > 0 {
			<-l.jobs
		}
		for range c.waits {
			l.jobs <- nil
		}
		l.flights.Store(c.flights)
		l.flying.Store(c.flying)
		if due := l.due(); due != c.due {
			t.Errorf("%+v: %v", c, due)
		}
	}
}
