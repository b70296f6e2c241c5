package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/drilltest"
	"agentgw/internal/freeport"
	"agentgw/internal/identity"
	"agentgw/internal/redistest"
)

// replicas are processes that share their limits.
type replicas struct {
	t        *testing.T
	key      string
	upstream *httptest.Server
	agents   []string // addresses
	admins   []string
	running  []*exec.Cmd
	said     []*lockedBuffer
	data     []string // folders

	mu       sync.Mutex
	requests map[string]bool // ids that the upstream saw
	times    []time.Time     // when it saw each

	inside, peak, seen atomic.Int64
	refused            atomic.Int64  // of the calls of hold
	stay               chan struct{} // closed: whoever is at the upstream may go
}

// newReplicas starts so many, each with a folder of its own, in front of an upstream
// that keeps calls of hold until it is told to let them go. The limits are of the tenant.
func newReplicas(t *testing.T, n int, redis, limits string, flags ...string) *replicas {
	t.Helper()
	return newReplicasBy(t, slices.Repeat([]string{redis}, n), limits, flags...)
}

// newReplicasBy is newReplicas, each of which finds Redis elsewhere.
func newReplicasBy(t *testing.T, redis []string, limits string, flags ...string) *replicas {
	t.Helper()
	return newReplicasWith(t, redis, limits, "", flags...)
}

// newReplicasWith is newReplicasBy with more in the registry: what goes on with its services.
// UPSTREAM in it is where the upstream is.
func newReplicasWith(t *testing.T, redis []string, limits, more string, flags ...string) *replicas {
	t.Helper()
	r := &replicas{t: t, stay: make(chan struct{}), requests: map[string]bool{}}
	r.upstream = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.upstream.Close)
	text, digest := identity.NewKey()
	r.key = text.Reveal()
	folder := t.TempDir()
	file := filepath.Join(folder, "registry.yaml")
	registry := fmt.Sprintf(`version: 1
tenants:
  t: %s
keys:
  - {id: k, sha256: %q, services: ["*"], users: ["*"], tenant: t, limits: {rps: 10000, burst: 10000}}
services:
  s:
    base_url: %s
    allow_private: true
    actions:
      get: {method: GET, path: /get}
      hold: {method: GET, path: /hold}
  closed:
    base_url: %s
    allow_private: true
    on_store_failure: closed
    actions:
      get: {method: GET, path: /get}
`, limits, hex.EncodeToString(digest[:]), r.upstream.URL, r.upstream.URL) + strings.ReplaceAll(more, "UPSTREAM", r.upstream.URL)
	if err := os.WriteFile(file, []byte(registry), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := program(t, folder)
	for i, url := range redis {
		agents, admin, said := freeport.Address(t), freeport.Address(t), &lockedBuffer{}
		data := filepath.Join(folder, fmt.Sprint("data", i))
		cmd := exec.Command(binary, append([]string{
			"serve", "--registry", file, "--data", data, "--listen", agents, "--admin-listen", admin, "--redis-timeout", "1s",
		}, flags...)...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "AGENTGATE_REDIS_URL="+url), said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		r.agents, r.admins, r.running, r.said = append(r.agents, agents), append(r.admins, admin), append(r.running, cmd), append(r.said, said)
		r.data = append(r.data, data)
	}
	for i := range r.agents {
		if !ready(r.admins[i]) {
			t.Fatalf("replica %d did not get ready:\n%s", i, r.said[i].String())
		}
	}
	return r
}

func (r *replicas) serve(w http.ResponseWriter, req *http.Request) {
	n := r.inside.Add(1)
	defer r.inside.Add(-1)
	r.seen.Add(1)
	r.mu.Lock()
	r.requests[req.Header.Get("X-Request-Id")] = true
	r.times = append(r.times, time.Now())
	r.mu.Unlock()
	for {
		if most := r.peak.Load(); n <= most || r.peak.CompareAndSwap(most, n) {
			break
		}
	}
	if req.URL.Path == "/hold" {
		select {
		case <-r.stay:
		case <-req.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "{}")
}

// call makes one call through a replica, and returns its status, and the code of a
// refusal.
func (r *replicas) call(replica int, service, action string) (status int, code string) {
	status, header := r.ask(replica, service, action)
	return status, header.Get("Agentgate-Code")
}

// ask is call with all fields of the answer; status 0 if there was none.
func (r *replicas) ask(replica int, service, action string) (status int, header http.Header) {
	req, err := http.NewRequest("POST", "http://"+r.agents[replica]+"/v1/act", strings.NewReader(fmt.Sprintf(`{"service":%q,"action":%q}`, service, action)))
	if err != nil {
		r.t.Error(err)
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header
}

// hold has so many calls be held at the upstream, spread over the replicas, and counts
// their statuses as they end.
func (r *replicas) hold(n int) (wait func() map[int]int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	statuses := map[int]int{}
	for i := range n {
		all.Go(func() {
			status, _ := r.call(i%len(r.agents), "s", "hold")
			if status == 429 {
				r.refused.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	return func() map[int]int { all.Wait(); return statuses }
}

func (r *replicas) metric(replica int, name string) string {
	res, err := http.Get("http://" + r.admins[replica] + "/metrics")
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	for line := range bytes.Lines(text) {
		if after, ok := strings.CutPrefix(string(line), name+" "); ok {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

// TestReplicasShareSlots: three replicas with one Redis, and forty callers who hold
// what they get, have the upstream see as many at once as one tenant may have, and the
// slots are back when they go.
func TestReplicasShareSlots(t *testing.T) {
	t.Parallel()
	replicasShareSlots(t, redistest.Start(t).URL())
}

// TestReplicasShareSlotsOfACluster: so they do with three servers, of which each has a part
// of what a call needs.
func TestReplicasShareSlotsOfACluster(t *testing.T) {
	t.Parallel()
	replicasShareSlots(t, redistest.StartCluster(t).URL())
}

func replicasShareSlots(t *testing.T, redis string) {
	r := newReplicas(t, 3, redis, "{rps: 10000, burst: 10000, max_inflight: 6}")
	done := r.hold(40)
	eventually(t, "six are at the upstream", func() bool { return r.inside.Load() == 6 })
	eventually(t, "the others were refused", func() bool { return r.refused.Load() == 34 })
	if status, code := r.call(0, "s", "get"); status != 429 || code != "concurrency_limited" {
		t.Errorf("%d %s with all slots taken", status, code)
	}
	close(r.stay)
	if statuses := done(); statuses[200] != 6 || r.peak.Load() != 6 {
		t.Errorf("%v, peak %d at the upstream; want 6 of 40, peak 6", statuses, r.peak.Load())
	}
	eventually(t, "slots are back", func() bool { status, _ := r.call(2, "s", "get"); return status == 200 })
	drilltest.Row(t, "slots of a fleet", "40 hold what they get at 3 replicas; "+strings.TrimPrefix(t.Name(), "Test"), fmt.Sprintf("peak %d at the upstream", r.peak.Load()), "6", r.peak.Load() == 6)
}

// TestReplicasShareBuckets: one bucket of thirty admits thirty, whoever is asked.
func TestReplicasShareBuckets(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 3, redistest.Start(t).URL(), "{rps: 0.01, burst: 30}")
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 90 {
		all.Go(func() {
			switch status, code := r.call(i%3, "s", "get"); {
			case status == 200:
				admitted.Add(1)
			case status == 429 && code == "rate_limited":
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if admitted.Load() != 30 || refused.Load() != 60 || r.seen.Load() != 30 {
		t.Errorf("%d admitted, %d refused, %d at the upstream; want 30 and 60", admitted.Load(), refused.Load(), r.seen.Load())
	}
	drilltest.Row(t, "a bucket of a fleet", "90 calls at once at 3 replicas, of a bucket of 30", fmt.Sprintf("%d admitted", admitted.Load()), "30", admitted.Load() == 30)
}

// TestAReplicaThatDies gives its slots back within eleven seconds, and takes none of
// those that others have.
func TestAReplicaThatDies(t *testing.T) {
	t.Parallel()
	cap, streams := rounds(9, 600), rounds(3, 200)
	r := newReplicas(t, 3, redistest.Start(t).URL(), fmt.Sprintf("{rps: 100000, burst: 100000, max_inflight: %d}", cap))
	done := r.hold(cap) // a third of them by each
	eventually(t, "all slots are taken", func() bool { return r.inside.Load() == int64(cap) })
	if err := r.running[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	eventually(t, "its calls have ended at the upstream", func() bool { return r.inside.Load() == int64(cap-streams) })
	if status, code := r.call(1, "s", "get"); status != 429 || code != "concurrency_limited" {
		t.Errorf("%d %s at once, while the dead one's leases last", status, code)
	}
	// All of them come back, and the others' are still their own.
	for range streams {
		go func() {
			for {
				if status, _ := r.call(1, "s", "hold"); status != http.StatusTooManyRequests {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	eventually(t, "all slots are taken again", func() bool { return r.inside.Load() == int64(cap) })
	passed := time.Since(killed)
	if rounds(0, 1) == 0 && passed > 20*time.Second {
		t.Errorf("after %v", passed)
	}
	if status, _ := r.call(1, "s", "get"); status != 429 || r.peak.Load() > int64(cap) {
		t.Errorf("%d with all slots taken, peak %d", status, r.peak.Load())
	}
	close(r.stay)
	if statuses := done(); statuses[200] != cap-streams {
		t.Errorf("%v of those who were there before: the others' calls were to go on", statuses)
	}
	eventually(t, "all is over", func() bool { return r.inside.Load() == 0 })
	intents := map[string]bool{}
	for i, data := range r.data {
		_, _ = r.running[i].Process.Kill(), r.running[i].Wait()
		of, _, _ := verified(t, data)
		maps.Copy(intents, of)
	}
	without := 0
	for id := range r.requests {
		if !intents[id] {
			without++
			t.Errorf("the upstream saw request %s, which has no intent", id)
		}
	}
	drilltest.Row(t, "a replica is killed", fmt.Sprintf("kill -9 of one of 3 with %d of %d slots", streams, cap),
		fmt.Sprintf("slots back after %v, peak %d, %d of %d calls without an intent", passed.Round(10*time.Millisecond), r.peak.Load(), without, len(r.requests)),
		fmt.Sprintf("11 s, peak %d, none; all logs verify", cap), passed <= 11*time.Second && r.peak.Load() <= int64(cap) && without == 0)
}

// TestTheStoreGoesAway: while it is gone each replica keeps its share, or nothing passes
// where that is asked for, and none waits for it; when it is back limits are shared
// again, and calls that ran all the while count.
func TestTheStoreGoesAway(t *testing.T) {
	for _, how := range []string{"stopped", "hanging"} {
		t.Run(how, func(t *testing.T) { theStoreGoesAway(t, how) })
	}
}

func theStoreGoesAway(t *testing.T, how string) {
	t.Parallel()
	store := redistest.Start(t)
	r := newReplicas(t, 2, store.URL(), "{rps: 10000, burst: 10000, max_inflight: 6}", "--redis-timeout", "100ms")
	eventually(t, "each knows of the other", func() bool {
		return r.metric(0, "agentgate_limits_replicas") == "2" && r.metric(1, "agentgate_limits_replicas") == "2"
	})
	done := r.hold(2)
	eventually(t, "two run", func() bool { return r.inside.Load() == 2 })
	if how == "stopped" {
		store.Stop()
	} else {
		store.Pause()
	}
	for i := range 2 {
		eventually(t, "the replica decides by itself", func() bool {
			r.call(i, "s", "get")
			return r.metric(i, "agentgate_limits_shared") == "0"
		})
	}
	began := time.Now()
	for range 20 {
		if status, code := r.call(0, "s", "get"); status != 200 {
			t.Fatalf("%d %s", status, code)
		}
	}
	each := time.Since(began) / 20
	if each > 100*time.Millisecond {
		t.Errorf("20 calls took %v each: they wait for the store", each)
	}
	if status, code := r.call(0, "closed", "get"); status != 503 || code != "limits_unavailable" {
		t.Errorf("%d %s of a service that is closed then", status, code)
	}
	more := r.hold(20)
	eventually(t, "each has its share of six, and the others were refused", func() bool { return r.inside.Load() == 6 && r.refused.Load() == 16 })
	if how == "stopped" {
		store.Again()
	} else {
		store.Resume()
	}
	back := time.Now()
	for i := range 2 {
		eventually(t, "limits are shared again", func() bool { return r.metric(i, "agentgate_limits_shared") == "1" })
	}
	shared := time.Since(back)
	if n := strings.TrimSpace(store.Do("ZCARD", "agw2:{registered:4:tenant:t}:slots")); n != ":6" {
		t.Errorf("the store knows of %s calls that run, want 6", n)
	}
	if status, code := r.call(1, "s", "get"); status != 429 || code != "concurrency_limited" {
		t.Errorf("%d %s with all slots taken", status, code)
	}
	close(r.stay)
	statuses, late := done(), more()
	if statuses[200] != 2 || late[200] != 4 || late[429] != 16 || r.peak.Load() > 8 {
		t.Errorf("%v and %v, peak %d", statuses, late, r.peak.Load())
	}
	eventually(t, "slots are back", func() bool { status, _ := r.call(0, "s", "get"); return status == 200 })
	drilltest.Row(t, "Redis is "+how, "2 replicas, cap 6; 22 hold what they get, 2 of them since before",
		fmt.Sprintf("a call %v while away, peak %d, shared again after %v", each.Round(100*time.Microsecond), r.peak.Load(), shared.Round(10*time.Millisecond)),
		"50 ms, peak 8, 10 s", each <= 50*time.Millisecond && r.peak.Load() <= 8 && shared <= 10*time.Second)
	for i, buffer := range r.said {
		if text := buffer.String(); !strings.Contains(text, "the limits are not shared") {
			t.Errorf("replica %d said nothing of it:\n%s", i, text)
		}
	}
}
