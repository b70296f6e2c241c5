package main

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentgw/internal/redistest"
)

// TestReplicasShareAQueue: of forty callers at three replicas, whose tenant may have six
// calls, all are served in the end, six at a time, with a slot that any of the
// replicas gives back; and nothing is left in Redis.
func TestReplicasShareAQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newReplicas(t, 3, server.URL(), "{rps: 10000, burst: 10000, max_inflight: 6}", "--tenant-queue", "40", "--tenant-queue-wait", "2m")
	var served atomic.Int64
	var all sync.WaitGroup
	for i := range 6 { // all of the first replica's
		all.Go(func() {
			if status, code := r.call(0, "s", "hold"); status == 200 {
				served.Add(1)
			} else {
				t.Errorf("caller %d: %d %s", i, status, code)
			}
		})
	}
	eventually(t, "six are at the service", func() bool { return r.inside.Load() == 6 })
	for i := range 34 {
		all.Go(func() {
			if status, code := r.call(i%3, "s", "get"); status == 200 {
				served.Add(1)
			} else {
				t.Errorf("caller %d: %d %s", i, status, code)
			}
		})
	}
	eventually(t, "all others wait", func() bool { return server.Do("ZCARD", "agw2:{registered:4:tenant:t}:slots") == ":10" }) // with a place of each replica, and the bell
	if n := r.seen.Load(); n != 6 {
		t.Errorf("the service saw %d calls while six were in the way", n)
	}
	close(r.stay)
	all.Wait()
	if served.Load() != 40 || r.peak.Load() != 6 {
		t.Errorf("%d were served, %d at most at once", served.Load(), r.peak.Load())
	}
	eventually(t, "nothing is left", func() bool { return server.Do("ZCARD", "agw2:{registered:4:tenant:t}:slots") == ":0" })
}

// TestANestedCallAtAnotherReplica: a call that a service makes while it serves one of another
// replica's does not wait for the slot of that one, which waits for it.
func TestANestedCallAtAnotherReplica(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2, redistest.Start(t).URL(), "{rps: 10000, burst: 10000, max_inflight: 1}", "--tenant-queue", "5", "--tenant-queue-wait", "10m")
	ended := r.hold(1)
	eventually(t, "one is at the service", func() bool { return r.inside.Load() == 1 })
	r.mu.Lock()
	id := slices.Collect(maps.Keys(r.requests))[0]
	r.mu.Unlock()
	req, err := http.NewRequest("POST", "http://"+r.agents[1]+"/v1/act", strings.NewReader(`{"service":"s","action":"get"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("X-Request-Id", id)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if code := res.Header.Get("Agentgate-Code"); res.StatusCode != 429 || code != "concurrency_limited" {
		t.Errorf("%d %s", res.StatusCode, code)
	}
	close(r.stay)
	if got := ended(); got[200] != 1 {
		t.Error(got)
	}
}
