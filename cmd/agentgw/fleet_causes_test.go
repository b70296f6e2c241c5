package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/explain"
	"agentgw/internal/redistest"
)

// TestAStartWithTheWrongPassword: limits are not said to be shared which nobody shares. The
// log says at once what is wrong and what to do, and no password; calls go on by the
// replica's share; and when the password is right limits are shared, with no restart.
func TestAStartWithTheWrongPassword(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	store.Do("CONFIG", "SET", "requirepass", "another")
	const secret = "s3cr3tword"
	r := newReplicas(t, 1, "redis://:"+secret+"@"+store.Addr, "{rps: 10000, burst: 10000, max_inflight: 6}")
	eventually(t, "the log says why, and whose the limits are", func() bool {
		text := r.said[0].String()
		return strings.Contains(text, "(WRONGPASS)") && strings.Contains(text, explain.Alone)
	})
	if text := r.said[0].String(); strings.Contains(text, explain.Shared) {
		t.Errorf("the line of the start says:\n%s", text)
	}
	if shared := r.metric(0, "agentgate_limits_shared"); shared != "0" {
		t.Errorf("agentgate_limits_shared is %s", shared)
	}
	if n := r.metric(0, `agentgate_limits_store_failures_total{reason="denied"}`); n == "0" || n == "" {
		t.Errorf("%s failures are counted", n)
	}
	if said := r.explained(0); !strings.Contains(said, explain.Alone) {
		t.Errorf("operators are told %s", said)
	}
	for range 10 {
		if status, code := r.call(0, "s", "get"); status != 200 {
			t.Fatalf("%d %s", status, code)
		}
	}
	if status, code := r.call(0, "closed", "get"); status != 503 || code != "limits_unavailable" {
		t.Errorf("%d %s of a service that is closed then", status, code)
	}
	warned := r.said[0].String()
	if strings.Contains(warned, "the limits are shared") || strings.Count(warned, "the limits are not shared") != 1 {
		t.Errorf("it said:\n%s", warned)
	}
	store.Do("CONFIG", "SET", "requirepass", secret) // this connection has said the one before
	eventually(t, "limits are shared", func() bool { return r.metric(0, "agentgate_limits_shared") == "1" })
	if status, code := r.call(0, "closed", "get"); status != 200 {
		t.Errorf("%d %s of a service that was closed", status, code)
	}
	if said := r.explained(0); !strings.Contains(said, explain.Shared) {
		t.Errorf("operators are told %s", said)
	}
	if text := r.said[0].String(); strings.Contains(text, secret) || strings.Count(text, "the limits are shared again") != 1 {
		t.Errorf("it said:\n%s", text)
	}
}

// explained is what a replica tells operators of the limits of a call.
func (r *replicas) explained(replica int) string {
	r.t.Helper()
	token, err := os.ReadFile(filepath.Join(r.data[replica], "admin-token"))
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequest("GET", "http://"+r.admins[replica]+"/admin/v1/limits/explain?key=k&service=s&action=get&user=ann", http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	var said struct {
		LimitsAre string `json:"limits_are"`
	}
	if err := json.NewDecoder(res.Body).Decode(&said); err != nil {
		r.t.Fatal(err)
	}
	return said.LimitsAre
}

// TestEachPolicyWhileTheStoreIsAway: a service and a rule that are open let pass, with a
// warning and a count, though bucket and window are used up; what is closed gets 503 and
// when to come back; the rest keeps its share. Each way is in the log once. When the store
// is back, and has forgotten all, replicas together admit one burst and no more.
func TestEachPolicyWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	r := newReplicasWith(t, []string{store.URL(), store.URL()}, "{rps: 0.002, burst: 6, max_inflight: 100}", `  opened:
    base_url: UPSTREAM
    allow_private: true
    on_store_failure: open
    actions: {get: {method: GET, path: /get}, strict: {method: GET, path: /get}, shared: {method: GET, path: /get}}
rules:
  - {name: loose, key: caller, window: 24h, max: 2, when: 'service == "opened" && action == "get"'}
  - {name: strict, key: caller, window: 24h, max: 1000, when: 'action == "strict"', on_store_failure: closed}
  - {name: share, key: caller, window: 24h, max: 10, when: 'action == "shared"', on_store_failure: local}
`)
	count := func(service, action string, n int) (admitted int, codes map[string]int) {
		codes = map[string]int{}
		for i := range n {
			status, code := r.call(i%2, service, action)
			if status == 200 {
				admitted++
			} else {
				codes[code]++
			}
		}
		return admitted, codes
	}
	eventually(t, "each knows of the other", func() bool {
		return r.metric(0, "agentgate_limits_replicas") == "2" && r.metric(1, "agentgate_limits_replicas") == "2"
	})
	if n, codes := count("opened", "get", 5); n != 2 {
		t.Errorf("a rule of 2 admits %d: %v", n, codes)
	}
	if n, codes := count("s", "get", 10); n != 4 {
		t.Errorf("of a bucket of 6 with 2 taken come %d: %v", n, codes)
	}

	store.Stop()
	for i := range 2 {
		eventually(t, "the replica decides by itself", func() bool {
			r.call(i, "closed", "get")
			return r.metric(i, "agentgate_limits_shared") == "0"
		})
	}
	if n, codes := count("opened", "get", 20); n != 20 {
		t.Errorf("an open service under an open rule admits %d of 20: %v", n, codes)
	}
	if n, codes := count("opened", "shared", 20); n != 10 {
		t.Errorf("of a rule of 10 two replicas admit %d by their shares: %v", n, codes)
	}
	if n, codes := count("s", "get", 10); n != 0 {
		t.Errorf("of an empty bucket replicas admit %d: %v", n, codes)
	}
	for _, of := range [][2]string{{"closed", "get"}, {"opened", "strict"}} {
		status, header := r.ask(0, of[0], of[1])
		if after := header.Get("Retry-After"); status != 503 || header.Get("Agentgate-Code") != "limits_unavailable" || after != "1" && after != "2" {
			t.Errorf("%s.%s: %d %v", of[0], of[1], status, header)
		}
	}
	for i := range 2 {
		if n := r.metric(i, `agentgate_rule_unasked_total{rule="loose"}`); n != "10" {
			t.Errorf("replica %d: %s calls passed without the rule, want 10", i, n)
		}
		if n := r.metric(i, `agentgate_limits_alone_total{policy="open"}`); n != "20" {
			t.Errorf("replica %d: %s calls were let pass, want 20", i, n)
		}
		eventually(t, "the log tells what passed", func() bool {
			text := r.said[i].String()
			return strings.Contains(text, "calls passed without limits") && strings.Contains(text, "calls passed without a rule")
		})
	}

	store.Again()
	for i := range 2 {
		eventually(t, "limits are shared again", func() bool { return r.metric(i, "agentgate_limits_shared") == "1" })
	}
	if n, codes := count("s", "get", 20); n != 6 || codes["rate_limited"] != 14 {
		t.Errorf("after the return replicas admit %d of 20, want one burst of 6: %v", n, codes)
	}
	for i := range 2 {
		text := r.said[i].String()
		for _, line := range []string{"the limits are shared", "the limits are not shared", "the limits are shared again"} {
			if n := strings.Count(text, line) - strings.Count(text, line+" again"); n != 1 {
				t.Errorf("replica %d says %d times %q:\n%s", i, n, line, text)
			}
		}
	}
}
