package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/drilltest"
	"agentgw/internal/redistest"
)

// timed skips a drill whose figures are times that a busy machine would not hold.
func timed(t *testing.T) {
	t.Helper()
	if os.Getenv("DRILLS") != "full" {
		t.Skip("it takes half a minute of a machine that has nothing else to do: DRILLS=full has it measured")
	}
}

// knowEachOther waits until every replica knows of all.
func (r *replicas) knowEachOther() {
	r.t.Helper()
	for i := range r.agents {
		eventually(r.t, "each knows of the others", func() bool { return r.metric(i, "agentgate_limits_replicas") == fmt.Sprint(len(r.agents)) })
	}
}

// TestReplicasWithASlowStore: answers that come 200 ms late keep no call for longer than
// the time that a decision may wait.
func TestReplicasWithASlowStore(t *testing.T) {
	timed(t)
	link := redistest.Between(t, redistest.Start(t))
	r := newReplicas(t, 2, link.URL(), "{rps: 10000, burst: 10000}", "--redis-timeout", "50ms")
	r.knowEachOther()
	p99 := func() time.Duration {
		var took []time.Duration
		for range 400 {
			began := time.Now()
			if status, code := r.call(0, "s", "get"); status != 200 {
				t.Errorf("%d %s", status, code)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	before := p99()
	link.Slow(200 * time.Millisecond)
	slow := p99()
	link.Slow(0)
	mended := time.Now()
	eventually(t, "limits are shared again", func() bool { return r.metric(0, "agentgate_limits_shared") == "1" })
	back := time.Since(mended)
	drilltest.Row(t, "Redis 200 ms slow", "400 calls one after the other; a decision may wait 50 ms",
		fmt.Sprintf("p99 %v more than before, shared again after %v", (slow-before).Round(100*time.Microsecond), back.Round(10*time.Millisecond)),
		"60 ms, 10 s", slow-before <= 60*time.Millisecond && back <= 10*time.Second)
}

// TestAReplicaThatIsCutOff from the store, one of three, has its share alone, and the
// others go on to share.
func TestAReplicaThatIsCutOff(t *testing.T) {
	timed(t)
	store := redistest.Start(t)
	link := redistest.Between(t, store)
	const most = 6
	r := newReplicasBy(t, []string{link.URL(), store.URL(), store.URL()}, fmt.Sprintf("{rps: 100000, burst: 100000, max_inflight: %d}", most), "--redis-timeout", "50ms")
	r.knowEachOther()
	link.Cut()
	eventually(t, "it decides by itself", func() bool {
		r.call(0, "s", "get")
		return r.metric(0, "agentgate_limits_shared") == "0"
	})
	done := r.hold(60)
	eventually(t, "the others have all, and it has its share", func() bool { return r.inside.Load() >= most+most/3 })
	others := r.metric(1, "agentgate_limits_shared") + r.metric(2, "agentgate_limits_shared")
	link.Mend()
	mended := time.Now()
	eventually(t, "limits are shared again", func() bool { return r.metric(0, "agentgate_limits_shared") == "1" })
	back := time.Since(mended)
	close(r.stay)
	done()
	eventually(t, "the slots are back", func() bool { return store.Do("ZCARD", slots) == ":0" })
	drilltest.Row(t, "a replica is cut off", "one of 3 replicas, cap 6; 60 hold what they get",
		fmt.Sprintf("peak %d, the others shared: %v, shared again after %v", r.peak.Load(), others == "11", back.Round(10*time.Millisecond)),
		"peak 6 + 2, yes, 10 s", r.peak.Load() <= most+most/3 && others == "11" && back <= 10*time.Second)
}

// slots is where the store has those of the tenant.
const slots = "agw2:{registered:4:tenant:t}:slots"

// TestReplicasTellWhatTheStoreForgot, all of it, while calls run: no more than the cap again may come until it
// has been told of them.
func TestReplicasTellWhatTheStoreForgot(t *testing.T) {
	timed(t)
	store := redistest.Start(t)
	r := newReplicas(t, 3, store.URL(), "{rps: 100000, burst: 100000, max_inflight: 6}")
	r.knowEachOther()
	done := r.hold(6)
	eventually(t, "six run", func() bool { return r.inside.Load() == 6 })
	store.Do("FLUSHALL")
	store.Do("SCRIPT", "FLUSH")
	forgot := time.Now()
	more := r.hold(40)
	eventually(t, "it knows of all that run", func() bool { return store.Do("ZCARD", slots) == fmt.Sprint(":", r.inside.Load()) })
	told := time.Since(forgot)
	eventually(t, "the others were refused", func() bool { status, _ := r.call(0, "s", "get"); return status == 429 })
	close(r.stay)
	first, late := done(), more()
	if first[200] != 6 || late[200]+late[429] != 40 {
		t.Errorf("%v and then %v", first, late)
	}
	drilltest.Row(t, "FLUSHALL, SCRIPT FLUSH", "3 replicas, cap 6, all taken; 40 more come",
		fmt.Sprintf("peak %d, told again after %v", r.peak.Load(), told.Round(10*time.Millisecond)), "peak 6 + 6, 5 s", r.peak.Load() <= 12 && told <= 5*time.Second)
}

// TestReplicasHoldTheRate of 100 a second while the store is gone and when it comes back:
// four, at each of which 100 calls a second are tried.
func TestReplicasHoldTheRate(t *testing.T) {
	timed(t)
	for _, how := range []string{"stopped", "hanging"} {
		t.Run(how, func(t *testing.T) { replicasHoldTheRate(t, how) })
	}
}

func replicasHoldTheRate(t *testing.T, how string) {
	store := redistest.Start(t)
	r := newReplicas(t, 4, store.URL(), "{rps: 100, burst: 10}", "--redis-timeout", "50ms")
	r.knowEachOther()
	var over atomic.Bool
	var load, calls sync.WaitGroup
	for i := range r.agents {
		load.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for !over.Load() {
				<-tick.C
				calls.Go(func() { r.call(i, "s", "get") })
			}
		})
	}
	window := func(d time.Duration) (from, to time.Time) { from = time.Now(); time.Sleep(d); return from, time.Now() }
	window(2 * time.Second) // so that the bucket is empty
	if how == "stopped" {
		store.Stop()
	} else {
		store.Pause()
	}
	down, up := window(10 * time.Second)
	if how == "stopped" {
		store.Again()
	} else {
		store.Resume()
	}
	for i := range r.agents {
		eventually(t, "limits are shared again", func() bool { return r.metric(i, "agentgate_limits_shared") == "1" })
	}
	back := time.Since(up)
	_, end := window(3 * time.Second)
	over.Store(true)
	load.Wait()
	calls.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	away, atAll := mostIn(r.times, down, up), mostIn(r.times, up, end)
	mean := float64(count(r.times, down, up)) / up.Sub(down).Seconds()
	drilltest.Row(t, "a rate while Redis is "+how, "100 a second shared by 4 replicas, 400 a second tried, for 10 s",
		fmt.Sprintf("%.0f a second, %d in any one; then %d, shared again after %v", mean, away, atAll, back.Round(10*time.Millisecond)),
		"50 at least, 125 + 4; then 125 + 4, 10 s", mean >= 50 && away <= 129 && atAll <= 129 && back <= 10*time.Second)
}

func count(times []time.Time, from, to time.Time) (n int) {
	for _, at := range times {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// mostIn is how many there are in the second that has the most, of those that begin
// between from and to.
func mostIn(times []time.Time, from, to time.Time) (most int) {
	for _, at := range times {
		if !at.Before(from) && at.Before(to) {
			most = max(most, count(times, at, at.Add(time.Second)))
		}
	}
	return most
}
