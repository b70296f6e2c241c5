package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"agentgw/internal/receipts"
)

// TestAFloodOfRefusals, of a key over its limit and of keys that there are not:
// every caller is told of a receipt that is in the log, no more than a thousand of
// each have one of their own, all are counted, and metrics count each.
func TestAFloodOfRefusals(t *testing.T) {
	const each = 1200
	m := measure(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, `version: 1
keys:
  - {KEY greedy, services: [tools], users: ["*"], limits: {rps: 0.01, burst: 1}}
  - {KEY other, services: [tools], users: ["*"]}
services:
  tools: {base_url: UPSTREAM, allow_private: true, actions: {get: {method: GET, path: /x}}}
`)
	defer crowd.CloseIdleConnections()
	call := func(key string) (status int, receipt, header string) {
		r, err := http.NewRequest("POST", "http://"+m.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"tools","action":"get"}`))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Agentgate-Key", key)
		res, err := crowd.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		var told struct{ Receipt string }
		if err := json.NewDecoder(res.Body).Decode(&told); err != nil {
			t.Error(err)
		}
		return res.StatusCode, told.Receipt, res.Header.Get("Agentgate-Receipt")
	}
	call(m.keys["greedy"]) // its one token
	var mu sync.Mutex
	told := map[string]map[string]int{"greedy": {}, "nobody": {}} // receipts
	headers := map[string]string{}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range each / 16 {
				for who, key := range map[string]string{"greedy": m.keys["greedy"], "nobody": "agw_nobody"} {
					status, receipt, header := call(key)
					if status/100 != 4 || !strings.HasPrefix(header, `id="`+receipt+`"`) || !strings.Contains(header, "leaf=:") || receipt == "" {
						t.Errorf("%d %q %q", status, receipt, header)
					}
					mu.Lock()
					told[who][receipt]++
					headers[receipt] = header
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for who, ids := range told {
		if len(ids) < 1001 || len(ids) > 1003 {
			t.Errorf("%s: %d receipts for %d refusals", who, len(ids), each)
		}
	}
	for id, n := range told["greedy"] {
		if n == 1 {
			continue
		}
		// It is its receipt, and nobody else's.
		if status := m.status("GET", "/v1/receipts/"+id, m.keys["other"], ""); status != http.StatusNotFound {
			t.Errorf("told to another: %d", status)
		}
	}
	series := m.scrape()
	m.want(series, map[string]float64{
		`agentgate_decisions_total{code="rate_limited",limit="key",service=""}`: each,
	})
	if n := series[`agentgate_decisions_total{code="unauthenticated",limit="",service=""}`] + series[`agentgate_decisions_total{code="rate_limited",limit="address",service=""}`]; n != each {
		t.Errorf("%v strangers were counted", n)
	}
	if err := m.receipts.Close(); err != nil {
		t.Fatal(err)
	}
	got, counting := m.recorded()
	if own, strangers := got[recorded{"key:greedy", receipts.KindRefusal}], got[recorded{"", receipts.KindRefusal}]; own != each || strangers != each || counting != 0 {
		t.Errorf("in the log %d of the key and %d of strangers, want %d each; %d summaries have not ended", own, strangers, each, counting)
	}
	vkey := m.receipts.VerifierKey()
	r, err := receipts.Verify(m.settings.DataDir, vkey, m.receipts.Checkpoint(), nil)
	if err != nil || r.Verdict != receipts.Holds || r.Summarised.Refusals != 2*(each-1000) {
		t.Errorf("%+v %v", r, err)
	}
}
