package redisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/drilltest"
	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// TestSentinelsFailOver: the master dies under load, and another is decided by within ten
// seconds, with the slots of all calls of a replica that run known to it before that gets
// another.
func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	watched := redistest.StartWatched(t)
	var replicas []*real
	for range 2 {
		r := newReal(t, watched.URL(), short, ratelimit.PolicyClosed)
		r.warm(t)
		replicas = append(replicas, r)
	}
	const most = 6
	var stay []ratelimit.Ticket
	for i := range 4 {
		eventually(t, "it runs", func() bool { // a busy machine may keep it for longer than short
			ticket, outcome := replicas[i%2].admit("t", most)
			if outcome == ratelimit.Admitted {
				stay = append(stay, ticket)
			}
			return outcome == ratelimit.Admitted
		})
	}
	var running, peak, admitted, unavailable atomic.Int64
	running.Store(int64(len(stay)))
	var over atomic.Bool
	var idle sync.RWMutex // nobody comes as long as the test has it
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			for !over.Load() {
				untold := int64(0) // of a replica that is not back yet the new master cannot know
				for _, r := range replicas {
					if r.store.Away() {
						untold += 2
					}
				}
				idle.RLock()
				ticket, outcome := replicas[i%2].admit("t", most)
				idle.RUnlock()
				if outcome == ratelimit.Admitted {
					n := running.Add(1) - untold
					for was := peak.Load(); n > was && !peak.CompareAndSwap(was, n); was = peak.Load() {
					}
					admitted.Add(1)
					time.Sleep(time.Millisecond) // it lasts
					running.Add(-1)
					ticket.Release()
				} else if outcome == ratelimit.Unavailable {
					unavailable.Add(1)
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	// What the master was told last is lost with it: it never came to the other.
	old, set := watched.Servers[0], "agw2:{registered:4:t}:slots"
	idle.Lock()
	eventually(t, "those run that stay", func() bool { return running.Load() == 4 && old.Do("ZCARD", set) == ":4" })
	old.Do("DEL", set)
	eventually(t, "the other knows of none", func() bool { return watched.Servers[1].Do("ZCARD", set) == ":0" })
	old.Stop()
	idle.Unlock()
	killed := time.Now()
	var followed time.Duration
	eventually(t, "the other is master", func() bool { return watched.Master() == watched.Servers[1] })
	told := time.Since(killed)
	for i, r := range replicas {
		eventually(t, "it is decided by", func() bool {
			ticket, outcome := r.admit(fmt.Sprint("other", i), 0)
			ticket.Release()
			return outcome == ratelimit.Admitted && !r.store.Away()
		})
	}
	followed = time.Since(killed)
	over.Store(true)
	load.Wait()
	if peak.Load() > most {
		t.Errorf("peak %d of %d", peak.Load(), most)
	}
	eventually(t, "the new master knows who runs, and no other", func() bool { return watched.Servers[1].Do("ZCARD", set) == ":4" })
	for _, ticket := range stay {
		ticket.Release()
	}
	eventually(t, "the slots are back", func() bool { return watched.Servers[1].Do("ZCARD", set) == ":0" })
	if followed-told > 10*time.Second {
		t.Errorf("the Sentinels named another after %v, which was decided by after %v", told, followed)
	}
	drilltest.Row(t, "failed over by Sentinel", "the master killed with 4 slots that the other never knew of, 8 calling",
		fmt.Sprintf("named after %v, decided by after %v, peak %d, %d unavailable", told.Round(10*time.Millisecond), followed.Round(10*time.Millisecond), peak.Load(), unavailable.Load()),
		"10 s after it is named, peak 6", followed-told <= 10*time.Second && peak.Load() <= most)
}

// TestAnOldMasterThatIsOneNoLonger, and still answers: its connections are given up, and
// whom the Sentinels name is asked.
func TestAnOldMasterThatIsOneNoLonger(t *testing.T) {
	t.Parallel()
	watched := redistest.StartWatched(t)
	r := newReal(t, watched.URL(), long, ratelimit.PolicyClosed)
	r.warm(t)
	if reply := watched.Sentinels[0].Do("SENTINEL", "FAILOVER", "main"); reply != "+OK" {
		t.Fatal(reply)
	}
	eventually(t, "the other is master", func() bool { return watched.Master() == watched.Servers[1] })
	eventually(t, "it is decided by", func() bool {
		ticket, outcome := r.admit("t", 1)
		defer ticket.Release()
		return outcome == ratelimit.Admitted && watched.Servers[1].Do("ZCARD", "agw2:{registered:4:t}:slots") == ":1"
	})
}

// TestNoSuchMaster, or a wrong password of Sentinels, is said.
func TestNoSuchMaster(t *testing.T) {
	t.Parallel()
	watched := redistest.StartWatched(t)
	r := newReal(t, "redis+sentinel://"+watched.Sentinels[0].Addr+"/other?sentinel_password=watch", long, ratelimit.PolicyClosed)
	if r.failures(t)[redisstore.Unnamed] == 0 {
		t.Errorf("failed for %v", r.store.Failures())
	}
}
