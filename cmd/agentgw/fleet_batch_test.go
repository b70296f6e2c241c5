package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/redistest"
)

// batch sends a batch of n calls of one action through a replica, and counts what its calls
// came to, by status and by the limit that refused; whole is the status of the batch.
func (r *replicas) batch(replica, n int, service, action string) (whole int, came map[string]int) {
	r.t.Helper()
	call := fmt.Sprintf(`{"service":%q,"action":%q}`, service, action)
	req, err := http.NewRequest("POST", "http://"+r.agents[replica]+"/v1/batch", strings.NewReader(`{"calls":[`+strings.Repeat(call+",", n-1)+call+`]}`))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	var said struct {
		Limit   string
		Results []struct {
			Status int
			Body   json.RawMessage
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&said); err != nil {
		r.t.Fatal(err)
	}
	came = map[string]int{}
	if res.StatusCode != 200 {
		came[said.Limit]++
	}
	for _, of := range said.Results {
		var refusal struct{ Limit string }
		_ = json.Unmarshal(of.Body, &refusal) // others have none
		came[strings.TrimSpace(fmt.Sprint(of.Status, " ", refusal.Limit))]++
	}
	return res.StatusCode, came
}

// TestBatchesOfAFleet: whichever replica takes a batch, what is charged once is charged once
// for it among all of them, what is charged for each call for each, and as many calls run at
// once as slots are left by whoever has some elsewhere, and none is refused for a slot that
// another of its batch holds.
func TestBatchesOfAFleet(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	r := newReplicasWith(t, []string{store.URL(), store.URL()}, "{rps: 10000, burst: 10000, max_inflight: 3}", `rules:
  - {name: once, key: caller, window: 24h, max: 3, when: 'service == "s" && action == "get"'}
  - {name: each, key: caller, window: 24h, max: 25, cost: true, when: 'service == "s" && action == "get"'}
`)
	done := r.hold(2) // one by each
	eventually(t, "two slots are taken", func() bool { return r.inside.Load() == 2 })
	for i, want := range []map[string]int{{"200": 10}, {"200": 10}, {"200": 5, "429 each": 5}, {"once": 1}} {
		whole, came := r.batch(i%2, 10, "s", "get")
		if fmt.Sprint(came) != fmt.Sprint(want) || (whole == 429) != (i == 3) {
			t.Errorf("batch %d: %d %v, want %v", i, whole, came, want)
		}
	}
	if peak := r.peak.Load(); peak != 3 {
		t.Errorf("peak %d at the upstream, want 3", peak)
	}
	close(r.stay)
	if statuses := done(); statuses[200] != 2 {
		t.Error(statuses)
	}
	eventually(t, "the slots are back", func() bool {
		n := store.Do("ZCARD", "agw2:{registered:4:tenant:t}:slots")
		return n == ":0"
	})
}
