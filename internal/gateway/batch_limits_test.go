package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

const batchRegistry = `
tenants:
  t: {rps: 0.01, burst: 10, max_inflight: 4}
services:
%[2]s
identity_limits: {user: 4}
rules:
  - {name: each, key: caller, window: 1h, max: 7, cost: true}
  - {name: once, key: caller, window: 1h, max: 5}
  - {name: person, key: principal, window: 1h, max: 5}
  - {name: pennies, key: caller, window: 1h, max: 1000, count: "request.params.id == '1' ? 1 : 10"}
`

// batchWorld is a world in which each limit that a call can meet can be read.
func batchWorld(t *testing.T, upstream http.HandlerFunc) *world {
	k := owned(of("t", &identity.Key{ID: "k", Services: []string{"tools", "other"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 0.01, Burst: 9}}), "u", "", "")
	services := serviceLine("tools", "rate_limit: {rps: 0.01, burst: 8},") + serviceLine("other", "")
	return setup{registry: strings.ReplaceAll(batchRegistry, "%[2]s", services)}.world(t, upstream, k)
}

// levels are what is left of the key, its tenant, the key at tools, and what the rules count.
func (w *world) batchLevels() string {
	rule := func(name, of string, window time.Duration, partition string) int64 {
		used, _ := w.limiter.Counted(ratelimit.NewRule(name, of, window, false), partition, w.nanos.Nanos())
		return used
	}
	return fmt.Sprintf("key %d, tenant %d, service %d; user %d, each %d, once %d, ann %d, bob %d, pennies %d",
		w.tokens(ratelimit.KindKey, "key:k", 0.01, 9), w.tokens(ratelimit.KindTenant, "tenant:t", 0.01, 10),
		w.tokens(ratelimit.KindService, ratelimit.ServiceBucket("k", "tools"), 0.01, 8),
		rule("user", "requests", time.Second, "u"), rule("each", "requests", time.Hour, "key:k"), rule("once", "requests", time.Hour, "key:k"),
		rule("person", "requests", time.Hour, "ann"), rule("person", "requests", time.Hour, "bob"),
		rule("pennies", "request.params.id == '1' ? 1 : 10", time.Hour, "key:k"))
}

// TestBatchCharges: the key, the identity and the rules once, for the batch, each partition
// key of a rule by itself and what counts a number by the sum; tenant, service and the rules
// of each call for every call that runs. What is out of scope is charged to nobody.
func TestBatchCharges(t *testing.T) {
	w := batchWorld(t, hello)
	want := func(what, levels string) {
		t.Helper()
		if got := w.batchLevels(); got != levels {
			t.Errorf("%s: %s, want %s", what, got, levels)
		}
	}
	want("at first", "key 9, tenant 10, service 8; user 0, each 0, once 0, ann 0, bob 0, pennies 0")
	dear := strings.Replace(plainCall("other", "bob"), `"id":"1"`, `"id":"2"`, 1)
	got, results := w.batch("k", plainCall("tools", "ann"), plainCall("tools", "ann"), plainCall("payroll", "bob"), dear)
	if statuses(results) != "200 200 403scope_denied 200" {
		t.Errorf("%s", statuses(results))
	}
	want("a batch of four, one of them out of scope", "key 8, tenant 7, service 6; user 1, each 3, once 1, ann 1, bob 1, pennies 12")
	if left := got.left(t); left["key"] != 8 || left["user"] != 3 || left["once"] != 4 || left["pennies"] != 988 {
		t.Errorf("the batch is told of %v", left)
	}
	if r := results[0].Headers["Ratelimit"]; !strings.Contains(r, `"tenant";r=`) || !strings.Contains(r, `"each";r=`) || strings.Contains(r, "once") || strings.Contains(r, "key") {
		t.Errorf("a call is told of %s", r)
	}
	if _, results := w.batch("k", plainCall("payroll", ""), plainCall("payroll", "")); statuses(results) != "403scope_denied 403scope_denied" {
		t.Errorf("%s", statuses(results))
	}
	want("a batch out of scope", "key 7, tenant 7, service 6; user 1, each 3, once 1, ann 1, bob 1, pennies 12")

	// A rule of each call refuses those for which there is no room, as by themselves.
	_, results = w.batch("k", times(6, plainCall("tools", "ann"))...)
	if n := strings.Count(statuses(results), "200"); n != 4 || strings.Count(statuses(results), "429rate_limited:each") != 2 {
		t.Errorf("%s", statuses(results))
	}
	want("six calls, and room for four", "key 6, tenant 3, service 2; user 2, each 7, once 2, ann 2, bob 1, pennies 18")

	for i := range 3 {
		w.clock.Advance(time.Second)
		got, _ := w.batch("k", plainCall("tools", "bob"), plainCall("tools", "ann"))
		if left := got.left(t)["person"]; got.status != 200 || left != int64(2-i) {
			t.Errorf("%d %s, told that %d are left, want what ann has, who has less than bob", got.status, got.body, left)
		}
	}
	want("three batches", "key 3, tenant 3, service 2; user 1, each 7, once 5, ann 5, bob 4, pennies 24")
	w.clock.Advance(time.Second)
	got, _ = w.batch("k", plainCall("tools", "ann"), plainCall("tools", "bob"))
	if v := fmt.Sprint(got.violated()); got.status != 429 || v != "[once person]" {
		t.Errorf("%d %s, violated %s", got.status, got.body, v)
	}
	want("one that finds two rules used up", "key 2, tenant 3, service 2; user 0, each 7, once 5, ann 5, bob 4, pennies 24")
	if got, _ = w.batch("k", plainCall("tools", "bob"), plainCall("tools", "ann")); got.status != 429 || got.left(t)["person"] != 0 {
		t.Errorf("%d %s, told of %v, want what ann has, who is refused", got.status, got.body, got.left(t))
	}
}

// TestBatchIsRefusedAsAWhole for what it is charged for as a whole: one refusal and one
// receipt, and nothing else is taken.
func TestBatchIsRefusedAsAWhole(t *testing.T) {
	w := batchWorld(t, hello)
	for range 4 {
		w.batch("k", plainCall("tools", ""))
	}
	before, records, calls := w.batchLevels(), len(w.ledger.all()), w.upstreamRequests()
	got, _ := w.batch("k", times(3, plainCall("tools", ""))...)
	got.want(t, "a fifth within the second", 429, "rate_limited", "user")
	after := strings.Replace(before, "key 5", "key 4", 1)
	if w.batchLevels() != after || w.upstreamRequests() != calls || after == before {
		t.Errorf("before %s, after %s, %d more calls", before, w.batchLevels(), w.upstreamRequests()-calls)
	}
	if all := w.ledger.all(); len(all) != records+1 || all[records].Kind != receipts.KindRefusal || all[records].Limit != "user" || all[records].Tenant != "tenant:t" || all[records].Key != "k" {
		t.Errorf("%+v", all[records:])
	}
	if got.header.Get("Agentgate-Receipt") == "" || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "the identity limit user allows 4 calls in each 1s") {
		t.Errorf("%v %s", got.header, got.body)
	}
	w.clock.Advance(time.Second)
	for range 4 { // the key's burst is 9
		w.batch("k", plainCall("other", ""))
	}
	got, _ = w.batch("k", plainCall("other", ""))
	got.want(t, "without a token of the key", 429, "rate_limited", "key")
	if all := w.ledger.all(); all[len(all)-1].Limit != "key" {
		t.Errorf("%+v", all[len(all)-1])
	}
}

// TestBatchWaitsAreTrue: the wait that a call of a batch is told is that of the call made
// again by itself, which needs a token of the key.
func TestBatchWaitsAreTrue(t *testing.T) {
	k := of("t", &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 0.01, Burst: 1}})
	w := setup{registry: "tenants:\n  t: {rps: 0.1, burst: 1}\nservices:\n" + serviceLine("tools", "")}.world(t, hello, k)
	_, results := w.batch("k", times(2, plainCall("tools", ""))...)
	refused := results[0]
	if refused.Status == 200 {
		refused = results[1]
	}
	if refused.code() != "rate_limited" {
		t.Fatalf("%s", statuses(results))
	}
	var after int
	if _, err := fmt.Sscan(refused.Headers["Retry-After"], &after); err != nil || after < 100 || after > 120 {
		t.Errorf("Retry-After %q: the tenant has a token in 10 s, and the key in 100", refused.Headers["Retry-After"])
	}
}

// TestBatchBytesAreCounted: a rule of bytes counts those of every call of a batch and of
// every answer, whether it is of the batch or of each call.
func TestBatchBytesAreCounted(t *testing.T) {
	body := strings.Repeat("x", 1000)
	w := setup{registry: "services:\n" + serviceLine("tools", "") + `
rules:
  - {name: whole, key: caller, window: 1h, max: 1000000, count: bytes}
  - {name: parts, key: caller, window: 1h, max: 1000000, count: bytes, cost: true}
`}.world(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(body)) }, everything("k"))
	call := plainCall("tools", "")
	if _, results := w.batch("k", times(3, call)...); statuses(results) != "200 200 200" {
		t.Fatal(statuses(results))
	}
	want := int64(3 * (len(call) + len(body)))
	for _, name := range []string{"whole", "parts"} {
		if used, _ := w.limiter.Counted(ratelimit.NewRule(name, "bytes", time.Hour, false), "key:k", w.nanos.Nanos()); used != want {
			t.Errorf("%s counted %d bytes, want %d", name, used, want)
		}
	}
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindOutcome && (r.In != int64(len(call)) || r.Out != 1000) {
			t.Errorf("%d in, %d out", r.In, r.Out)
		}
	}
}

// TestBatchMeetsTheLeastMax that a rule of the batch has for any of its calls, in whatever
// order they come.
func TestBatchMeetsTheLeastMax(t *testing.T) {
	w := setup{registry: "services:\n" + serviceLine("tools", "") + serviceLine("other", "") + `
rules:
  - {name: least, key: caller, window: 1h, max: "service == 'other' ? 1 : 5"}
`}.world(t, hello, everything("k"))
	tools, other := plainCall("tools", ""), plainCall("other", "")
	if _, results := w.batch("k", tools, other); statuses(results) != "200 200" {
		t.Fatal(statuses(results))
	}
	for _, calls := range [][]string{{tools, other}, {other, tools}} {
		if res := w.do(w.batchRequest("k", batchOf(calls...))); res.status != http.StatusTooManyRequests {
			t.Errorf("%v: %d", calls, res.status)
		}
	}
	if _, results := w.batch("k", tools); statuses(results) != "200" {
		t.Error(statuses(results))
	}
}

// TestNoHeaderClaimsABatch: whatever an agent says, its calls and its batches are charged
// to its identity.
func TestNoHeaderClaimsABatch(t *testing.T) {
	claims := []string{"true", "1", "0", "", "internal"}
	names := []string{
		"Agentgate-Batch", "X-Agentgate-Batch", "Agentgate-Batch-Id", "Agentgate-Batch-Index", "Agentgate-Internal", "X-Agentgate-Internal",
		"X-Batch", "X-Batch-Id", "X-Batch-Request", "X-Batch-Member", "Batch", "X-Internal", "X-Internal-Request", "X-Internal-Dispatch", "X-Dispatch",
		"X-Skip-Rate-Limit", "X-Skip-Identity-Limits", "X-Ratelimit-Bypass", "X-No-Limit", "X-Nested", "X-Parent-Request-Id", "Agentgate-Part", "X-Cost",
		"X-Forwarded-For", "Via", "X-Request-Id", "Traceparent", "User-Agent", "Content-Id",
	}
	w := setup{registry: "services:\n" + serviceLine("tools", "") + "identity_limits: {user: 1}\n"}.world(t, hello, owned(roomy("k"), "u", "", ""))
	got, _ := w.batch("k", plainCall("tools", ""))
	if got.status != 200 {
		t.Fatal(got.body)
	}
	id := got.header.Get("X-Request-Id")
	for _, name := range names {
		for _, claim := range append(claims, id, id+"-0", "127.0.0.1") {
			for _, r := range []*http.Request{w.request(t.Context(), "k", plainCall("tools", "")), w.batchRequest("k", batchOf(plainCall("tools", "")))} {
				r.Header.Set(name, claim)
				w.do(r).want(t, fmt.Sprintf("%s: %s", name, claim), 429, "rate_limited", "user")
			}
		}
	}
	for _, body := range []string{
		`{"calls":[` + plainCall("tools", "") + `],"batch":true}`, `{"calls":[` + plainCall("batch", "") + `],"internal":true}`,
		`{"calls":[{"service":"tools","action":"get","params":{"id":"1"},"batch":true}]}`,
	} {
		w.do(w.batchRequest("k", body)).want(t, body, 400, "bad_request", "")
	}
}
