package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/receipts"
)

type tenantSeen struct {
	ID       string
	InFlight int64 `json:"in_flight"`
	Queued   int64
	Most     *int64 `json:"max_inflight"`
	Bucket   *struct {
		RPS              float64
		Burst, Remaining int64
	}
	Blocked, Overflow bool
	LastRefusal       *struct {
		At                  time.Time
		Code, Limit, Tenant string
	} `json:"last_refusal"`
}

func (r *reloading) tenant(id string) (t tenantSeen) {
	r.t.Helper()
	status, body := r.operate("GET", "/admin/v1/tenants/"+id, operators)
	if status != http.StatusOK {
		r.t.Fatalf("%s: %d %s", id, status, body)
	}
	if err := json.Unmarshal([]byte(body), &t); err != nil {
		r.t.Fatal(err)
	}
	return t
}

// TestOperatorsSeeTenants: what is in flight and what is left, by full name, under
// the limits in force; of one also its keys. A tenant that calls can be charged to
// is shown before it has called.
func TestOperatorsSeeTenants(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 3}")
	row := func(inFlight, most, burst, left int) string {
		return fmt.Sprintf(`{"id":"tenant:t","in_flight":%d,"queued":0,"max_queued":0,"max_inflight":%d,"bucket":{"rps":0.01,"burst":%d,"remaining":%d},"blocked":false,"overflow":false,"last_refusal":null`,
			inFlight, most, burst, left)
	}
	const keys = `,"keys":[{"id":"k","bucket":{"rps":1000,"burst":1000,"remaining":1000},"services":[]}]}`
	see := func(what, path, want string) {
		t.Helper()
		eventually(t, "the key's bucket is full again", func() bool {
			_, body := r.operate("GET", "/admin/v1/tenants/tenant:t", operators)
			return strings.Contains(body, `"remaining":1000}`)
		})
		if _, body := r.operate("GET", path, operators); body != want+"\n" {
			t.Errorf("%s: %s", what, cmp.Diff(want+"\n", body))
		}
	}
	see("nobody has called", "/admin/v1/tenants", `{"tenants":[]}`)
	see("before it calls", "/admin/v1/tenants/tenant:t", row(0, 3, 10, 10)+keys)
	r.admitted(2)
	r.call("hold")
	see("one", "/admin/v1/tenants/tenant:t", row(1, 3, 10, 7)+keys)
	see("one, with its colon escaped", "/admin/v1/tenants/tenant%3At", row(1, 3, 10, 7)+keys)
	see("all", "/admin/v1/tenants", `{"tenants":[`+row(1, 3, 10, 7)+`}]}`)
	r.reload("{rps: 0.01, burst: 4, max_inflight: 2}")
	see("after a reload, and no call yet", "/admin/v1/tenants", `{"tenants":[`+row(1, 2, 4, 4)+`}]}`)
	status, body := r.operate("GET", "/admin/v1/tenants/tenant:tt", operators)
	if want := `{"type":"about:blank","title":"Not Found","status":404,"detail":"there is no tenant \"tenant:tt\": no key is charged to it, and it has not called lately; ` +
		`did you mean tenant:t?","code":"not_found"}` + "\n"; status != http.StatusNotFound || body != want {
		t.Errorf("one that there is not: %d %s", status, cmp.Diff(want, body))
	}
}

// TestOperatorsLookForFree: a burst of ten is ten calls, however often operators
// look at it between them, and what they are told is never under 0 or over 10.
func TestOperatorsLookForFree(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 0}")
	for i := range 12 {
		if got, want := r.admitted(1), min(1, max(0, 10-i)); got != want {
			t.Errorf("call %d: %d admitted, want %d", i, got, want)
		}
		for range 3 {
			if got, want := r.tenant("tenant:t").Bucket.Remaining, int64(max(0, 9-i)); got != want {
				t.Fatalf("after call %d: %d remaining, want %d", i, got, want)
			}
		}
	}
	for range 50 {
		r.admitted(1)
	}
	if got := r.tenant("tenant:t").Bucket.Remaining; got != 0 {
		t.Errorf("refused again and again: %d remaining", got)
	}
}

// TestOperatorsBlockATenant: its running calls end, visibly and with their
// reason in the receipt, its later ones are refused and cost nothing, and others
// go on; until it is unblocked.
func TestOperatorsBlockATenant(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 3}")
	res := r.call("hold")
	if status, body := r.operate("POST", "/admin/v1/tenants/tenant:t/block", operators); status != http.StatusOK ||
		body != `{"id":"tenant:t","blocked":true,"known":true,"calls_ended":1}`+"\n" {
		t.Fatalf("%d %s", status, body)
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the call that was ended looks whole")
	}
	var ended *receipts.Record
	eventually(t, "the receipt of the ended call", func() bool {
		records, err := r.server.receipts.Find(receiptID.FindStringSubmatch(res.Header.Get("Agentgate-Receipt"))[1], "k")
		if err != nil || len(records) != 2 {
			return false
		}
		ended = new(receipts.Record)
		return json.Unmarshal(records[1], ended) == nil
	})
	if ended.Ending != receipts.Blocked {
		t.Errorf("the call ended as %q", ended.Ending)
	}
	refused := r.call("get")
	if refused.StatusCode != http.StatusForbidden || refused.Header.Get("Agentgate-Code") != "tenant_blocked" {
		t.Errorf("while blocked: %s %v", refused.Status, refused.Header)
	}
	if got := r.tenant("tenant:t"); !got.Blocked || got.InFlight != 0 || got.Bucket.Remaining != 9 {
		t.Errorf("while blocked: %+v", got)
	}
	r.operate("POST", "/admin/v1/tenants/tenant:t/unblock", operators)
	if got := r.admitted(2); got != 2 || r.tenant("tenant:t").Blocked {
		t.Errorf("after unblocking %d of 2 admitted", got)
	}
}

// TestABlockOfNobodyIsTold: a name that nobody knows is misspelt, most likely, and
// the tenant that was meant goes on. So nothing is done, and that is said, unless
// the block is asked for ahead; the same of an unblock.
func TestABlockOfNobodyIsTold(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10}")
	for _, c := range []struct {
		what, path string
		status     int
		want       string // in the answer
	}{
		{"misspelt", "tenant:tt/block", 404, "nobody was blocked (?ahead=true blocks who is not known yet); did you mean tenant:t?"},
		{"not a full name", "t/block", 404, `"that is not the full name of a tenant, such as tenant:acme, key:ci-bot or human:user-42; nobody was blocked (?ahead=true blocks who is not known yet); did you mean tenant:t?"`},
		{"a key", r.key + "/block", 404, `human:user-42; nobody was blocked (?ahead=true blocks who is not known yet)","code"`},
		{"ahead, and not a full name", "t/block?ahead=true", 404, "that is not the full name"},
		{"ahead, and a key", "key:" + r.key + "/block?ahead=true", 404, "that is not the full name"},
		{"another parameter", "tenant:tt/block?force=true", 400, `"parameters":[{"name":"force=true"`},
		{"known, and another parameter", "tenant:t/block?ahead=yes", 400, "nobody was blocked"},
		{"misspelt, unblocked", "tenant:tt/unblock", 404, "nobody was unblocked"},
		{"not blocked", "tenant:t/unblock", 200, `{"id":"tenant:t","blocked":false,"was_blocked":false}`},
		{"ahead", "human:u/block?ahead=true", 200, `{"id":"human:u","blocked":true,"known":false,"calls_ended":0}`},
		{"that was blocked ahead is known", "human:u/block", 200, `{"id":"human:u","blocked":true,"known":true,"calls_ended":0}`},
	} {
		status, body := r.operate("POST", "/admin/v1/tenants/"+c.path, operators)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.what, status, body)
		}
	}
	if _, body := r.operate("GET", "/admin/v1/tenants", operators); strings.Count(body, `"blocked":true`) != 1 || !strings.Contains(body, `{"id":"human:u",`) {
		t.Errorf("blocked are %s", body)
	}
	if !r.tenant("human:u").Blocked || r.admitted(1) != 1 {
		t.Error("the one is not blocked, or the other is")
	}
	if _, body := r.operate("POST", "/admin/v1/tenants/human:u/unblock", operators); body != `{"id":"human:u","blocked":false,"was_blocked":true}`+"\n" {
		t.Error(body)
	}
	if status, body := r.operate("GET", "/admin/v1/tenants/human:u", operators); status != 404 {
		t.Errorf("unblocked, and nobody's: %d %s", status, body)
	}
}

const refusingRegistry = `version: 1
tenants:
  slow: {rps: 0.003, burst: 2}
  crowded: {rps: 0, max_inflight: 1}
  quiet: {rps: 0, max_inflight: 0}
rules: [{name: one-each, key: caller, when: service == "ruled", window: 1h, max: 1}]
keys:
  - {KEY slow, services: ["*"], users: ["*"], tenant: slow, limits: {rps: 1000, burst: 2000}}
  - {KEY crowded, services: ["*"], users: ["*"], tenant: crowded, limits: {rps: 1000, burst: 2000}}
  - {KEY quiet, services: [tools, limited, ruled], users: ["*"], tenant: quiet, limits: {rps: 1000, burst: 2000}}
  - {KEY scarce, services: ["*"], users: ["*"], limits: {rps: 0.003, burst: 1}}
services:
  tools: {base_url: UPSTREAM, allow_private: true, max_inflight: 2, actions: {get: {method: GET, path: /get}, stream: {method: GET, path: /stream}}}
  limited: {base_url: UPSTREAM, allow_private: true, rate_limit: {rps: 0.003, burst: 1}, actions: {get: {method: GET, path: /get}}}
  ruled: {base_url: UPSTREAM, allow_private: true, actions: {get: {method: GET, path: /get}}}
`

func (m *measured) tenants(path string) string {
	m.t.Helper()
	r, err := http.NewRequest("GET", "http://"+m.operatorsListener.Addr().String()+"/admin/v1/tenants"+path, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+m.adminToken.Reveal())
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		m.t.Fatal(res.Status, err, string(body))
	}
	return string(body)
}

// TestOperatorsSeeTheLastRefusal of each tenant, of every kind that the step which
// takes tokens and slots has, as the agent was told it and when; and none that
// another step decided.
func TestOperatorsSeeTheLastRefusal(t *testing.T) {
	end := make(chan struct{})
	m := measure(t, measuredUpstream(end), refusingRegistry, "--max-inflight", "3")
	defer close(end)
	last := func(tenant string) (code, limit string) {
		t.Helper()
		var seen tenantSeen
		if err := json.Unmarshal([]byte(m.tenants("/"+tenant)), &seen); err != nil {
			t.Fatal(err)
		}
		if seen.LastRefusal == nil {
			return "", ""
		}
		if age := time.Since(seen.LastRefusal.At); age < 0 || age > 10*time.Second || seen.LastRefusal.Tenant != "" {
			t.Errorf("%+v", *seen.LastRefusal)
		}
		return seen.LastRefusal.Code, seen.LastRefusal.Limit
	}
	ruled := `{"service":"ruled","action":"get"}`
	get, stream, limited := `{"service":"tools","action":"get"}`, `{"service":"tools","action":"stream"}`, `{"service":"limited","action":"get"}`
	for _, c := range []struct {
		key, tenant, body string
		status            int
		code, limit       string // that are shown then
	}{
		{"slow", "tenant:slow", get, 200, "", ""},
		{"slow", "tenant:slow", get, 200, "", ""},
		{"slow", "tenant:slow", get, 429, "rate_limited", "tenant"},
		{"crowded", "tenant:crowded", stream, 200, "", ""},
		{"crowded", "tenant:crowded", get, 429, "concurrency_limited", "tenant"},
		{"quiet", "tenant:quiet", ruled, 200, "", ""},
		{"quiet", "tenant:quiet", ruled, 429, "rate_limited", "one-each"},
		{"quiet", "tenant:quiet", limited, 200, "rate_limited", "one-each"},
		{"quiet", "tenant:quiet", limited, 429, "rate_limited", "service"},
		{"quiet", "tenant:quiet", `{"service":"none","action":"get"}`, 403, "rate_limited", "service"}, // another step's
		{"quiet", "tenant:quiet", "{", 400, "rate_limited", "service"},
		{"quiet", "tenant:quiet", stream, 200, "rate_limited", "service"}, // and an admitted call forgets none
		{"quiet", "tenant:quiet", get, 429, "concurrency_limited", "service"},
		{"scarce", "key:scarce", limited, 200, "", ""},
		{"scarce", "key:scarce", limited, 429, "", ""}, // the key's own, of a step before
	} {
		if c.body == stream {
			open := m.send("POST", "/v1/act", m.keys[c.key], c.body)
			defer func() { _ = open.Body.Close() }()
			if open.StatusCode != c.status {
				t.Fatal(open.Status)
			}
		} else if got := m.status("POST", "/v1/act", m.keys[c.key], c.body); got != c.status {
			t.Fatalf("%s %s: %d, want %d", c.key, c.body, got, c.status)
		}
		if code, limit := last(c.tenant); code != c.code || limit != c.limit {
			t.Errorf("%s, after %s: %s %s, want %s %s", c.tenant, c.body, code, limit, c.code, c.limit)
		}
	}
	operations{m.server}.Block("tenant:slow", false)
	m.status("POST", "/v1/act", m.keys["slow"], get)
	if code, limit := last("tenant:slow"); code != "tenant_blocked" || limit != "" {
		t.Errorf("of a blocked tenant: %s %s", code, limit)
	}
}

// TestSharedEntriesHaveNamesOfTheirOwn: where the table is full, the entries that
// many share can be told apart and looked at one by one, and each tenant among
// them is found by its own name.
func TestSharedEntriesHaveNamesOfTheirOwn(t *testing.T) {
	end := make(chan struct{})
	m := measure(t, measuredUpstream(end), refusingRegistry, "--rate-table-size", "1")
	defer close(end)
	// The first key has the only seat, and owes for minutes. Were it one whose bucket is
	// full again after a millisecond, the next that came would have the seat in its place
	// where that has passed.
	for _, key := range []string{"scarce", "slow", "slow", "slow", "crowded", "quiet"} {
		if m.status("POST", "/v1/act", m.keys[key], `{"service":"tools","action":"get"}`) == 0 {
			t.Fatal(key)
		}
	}
	open := m.send("POST", "/v1/act", m.keys["crowded"], `{"service":"tools","action":"stream"}`)
	defer func() { _ = open.Body.Close() }()
	var all struct{ Tenants []tenantSeen }
	if err := json.Unmarshal([]byte(m.tenants("")), &all); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	shared := 0
	for _, row := range all.Tenants {
		if ids[row.ID] {
			t.Errorf("two rows are %s", row.ID)
		}
		ids[row.ID] = true
		if !row.Overflow {
			continue
		}
		shared++
		var one tenantSeen
		if err := json.Unmarshal([]byte(m.tenants("/"+row.ID)), &one); err != nil || one.ID != row.ID || !one.Overflow {
			t.Errorf("%v: looked up as %s: %+v", err, row.ID, one)
		}
		if row.ID == "overflow:5m33.333333334s:2" && (row.LastRefusal == nil || row.LastRefusal.Tenant != "tenant:slow" || row.LastRefusal.Code != "rate_limited") {
			t.Errorf("whose refusal it was is not told: %+v", row.LastRefusal)
		}
	}
	if shared < 2 || !ids["overflow:5m33.333333334s:2"] {
		t.Errorf("%d rows are shared: %v", shared, ids)
	}
	var slow tenantSeen
	if err := json.Unmarshal([]byte(m.tenants("/tenant:slow")), &slow); err != nil || slow.ID != "tenant:slow" || slow.Bucket.Remaining != 0 || slow.LastRefusal.Limit != "tenant" {
		t.Errorf("%v %+v", err, slow)
	}
}
