package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestReloadsUnderLoad: with one reload a second under 500 calls a second (a few
// in `make test`, at ten times the pace), asked for or found in the file, no call
// fails, each is decided by the one file under which it came, also where a reload
// comes between two of its steps, but under the caps of the new one, no goroutine is left behind, and keys that are made and revoked meanwhile are served, and then never
// again.
func TestReloadsUnderLoad(t *testing.T) {
	turns, every, perSecond := rounds(12, 100), time.Second/10, 250
	if rounds(0, 1) == 1 {
		every, perSecond = time.Second, 500
	}
	r := newReloads(t)
	r.call(r.key)
	r.put(1)
	r.ask()
	r.call(r.key)
	before := r.quiet()
	ctx, end := context.WithCancel(t.Context())
	var load sync.WaitGroup
	const callers = 10
	for range callers {
		load.Go(func() {
			tick := time.NewTicker(callers * time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for ctx.Err() == nil {
				if status := r.call(r.key); status != http.StatusOK {
					t.Errorf("a call failed: %d", status)
				}
				<-tick.C
			}
		})
	}
	made := 0
	load.Go(func() {
		for ; ctx.Err() == nil; made++ {
			r.makeAndRevoke(fmt.Sprintf("made-%d", made))
		}
	})
	began := time.Now()
	pace := time.NewTicker(every)
	for turn := 2; turn < 2+turns; turn++ {
		<-pace.C
		goOn := r.across(turn - 1)
		r.put(turn)
		if turn%2 == 0 {
			r.ask()
		}
		eventually(t, "the changed file is in force", r.inForce)
		goOn()
	}
	pace.Stop()
	took := time.Since(began)
	end()
	load.Wait()
	if n := strings.Count(r.log.String(), "changed=true"); n != turns+1 {
		t.Errorf("%d reloads, want %d", n, turns+1)
	}
	if r.sides[0].calls.Load() < int64(turns) || r.sides[1].calls.Load() < int64(turns) {
		t.Errorf("%d calls by one file, %d by the other", r.sides[0].calls.Load(), r.sides[1].calls.Load())
	}
	after := 0
	eventually(t, "no goroutine is left behind", func() bool { after = r.quiet(); return after <= before })
	t.Logf("%d reloads in %v under %.0f calls/s: %d calls by one file, %d by the other, %d by a mixture; %d keys made and revoked; goroutines %d before, %d after",
		turns, took.Round(time.Second/10), float64(r.calls.Load())/took.Seconds(), r.sides[0].calls.Load(), r.sides[1].calls.Load(), r.mixed.Load(), made, before, after)
}

// makeAndRevoke has a key made and revoked by another process. Each of its calls
// is served or its key is unknown; once it has been unknown after its revocation
// it stays so.
func (r *reloads) makeAndRevoke(id string) {
	var made struct{ Key string }
	text := r.command("", "keys", "create", "--id", id, "--services", "*", "--users", "*", "--tenant", "t", "--json")
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		r.t.Error(err)
		return
	}
	until := func(want int) {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			switch status := r.call(made.Key); {
			case status == want:
				return
			case status != http.StatusOK && status != http.StatusUnauthorized || time.Now().After(end):
				r.t.Errorf("key %s: %d, want %d", id, status, want)
				return
			}
		}
	}
	until(http.StatusOK)
	r.command("", "keys", "revoke", id)
	until(http.StatusUnauthorized)
	for range 3 {
		if status := r.call(made.Key); status != http.StatusUnauthorized {
			r.t.Errorf("key %s is revoked and was served again: %d", id, status)
		}
	}
}
