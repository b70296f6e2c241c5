package gateway_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentgw/internal/config"
	"agentgw/internal/delegation"
	"agentgw/internal/receipts"
)

// batchFile has a tenant with two slots.
func batchFile(services ...string) string {
	return "tenants:\n  t: {rps: 100000, burst: 100000, max_inflight: 2}\nservices:\n" + serviceLine("tools", "") + strings.Join(services, "")
}

// endings counts outcomes by how they ended and refusals by their code, and fails where
// a receipt has not both records, or not the one.
func (w *world) endings() map[string]int {
	w.t.Helper()
	intents, all := map[string]bool{}, map[string]int{}
	for _, r := range w.ledger.all() {
		switch r.Kind {
		case receipts.KindIntent:
			intents[r.ID] = true
		case receipts.KindOutcome:
			if !intents[r.ID] {
				w.t.Errorf("an outcome without an intent, or a second one: %+v", r)
			}
			delete(intents, r.ID)
			all[string(r.Ending)]++
		default:
			all[r.Code]++
		}
	}
	if len(intents) > 0 {
		w.t.Errorf("%d intents without an outcome", len(intents))
	}
	return all
}

// TestAbortedBatches: a client that hangs up ends the calls of its batch that run, none of
// the others begins, and every slot is free; 20 times, or a thousand in full.
func TestAbortedBatches(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			leak := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leak) })
			up := newGate()
			w := setup{registry: batchFile()}.world(t, up.serve, of("t", roomy("k")))
			w.front(protocol)
			body := batchOf(times(64, plainCall("tools", ""))...)
			rounds := drills(10, 500)
			for round := range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				_, _, before, _ := up.counts()
				r := w.batchRequest("k", body).WithContext(ctx)
				done := make(chan error, 1)
				go func() {
					res, err := w.server.Client().Do(r)
					if err == nil {
						_, err = io.ReadAll(res.Body)
						_ = res.Body.Close()
					}
					done <- err
				}()
				up.holds(t, 2)
				if round%2 == 1 { // one that has begun to answer
					up.open <- struct{}{}
					eventually(t, "another call runs", func() bool { running, _, all, _ := up.counts(); return running == 2 && all == before+3 })
				}
				cancel()
				if err := soon(t, done); err == nil {
					t.Fatal("a batch that was given up looks whole")
				}
				eventually(t, "the slots are free", func() bool {
					running, _, _, _ := up.counts()
					return running == 0 && w.inFlight("tenant:t") == 0 && w.pooled() == 0
				})
			}
			_, peak, all, cut := up.counts()
			if whole := rounds / 2; peak != 2 || cut != 2*rounds || all != cut+whole {
				t.Errorf("%d rounds: %d calls of which %d were cut, %d at once", rounds, all, cut, peak)
			}
			eventually(t, "the outcomes are there", func() bool { return len(w.ledger.all()) == 2*all })
			if got := w.endings(); got[string(receipts.ClientCancelled)] != cut || got[string(receipts.Complete)] != all-cut {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestBatchDrains: what runs finishes, and what has not begun is told to go elsewhere.
func TestBatchDrains(t *testing.T) {
	up := newGate()
	w := setup{registry: batchFile()}.world(t, up.serve, of("t", roomy("k")))
	got := w.inBackground("k", batchOf(times(5, plainCall("tools", ""))...))
	up.holds(t, 2)
	w.gateway.Drain()
	close(up.open)
	results := w.results(soon(t, got))
	if want := "200 200 503draining 503draining 503draining"; statuses(results) != want {
		t.Errorf("%s, want %s", statuses(results), want)
	}
	if results[4].Headers["Retry-After"] == "" {
		t.Errorf("%+v", results[4])
	}
	refused, _ := w.batch("k", plainCall("tools", ""))
	refused.want(t, "a batch that comes later", 503, "draining", "")
}

// TestBatchDrainsWhereItWaitsForItself: a call that waits for another of its batch does not
// begin when that has ended.
func TestBatchDrainsWhereItWaitsForItself(t *testing.T) {
	up := newGate()
	w := setup{registry: batchFile(serviceLine("few", "max_inflight: 1,"))}.world(t, up.serve, of("t", roomy("k")))
	got := w.inBackground("k", batchOf(times(3, plainCall("few", ""))...))
	up.holds(t, 1)
	w.gateway.Drain()
	close(up.open)
	results := w.results(soon(t, got))
	if n := strings.Count(statuses(results), "503draining"); n != 2 || strings.Count(statuses(results), "200") != 1 {
		t.Errorf("%s, want one that ran", statuses(results))
	}
}

// TestBatchIsOverWhenItsCallsAre: the client may be gone, but what serves the batch stays
// until the outcomes are there, and so does a server that shuts down.
func TestBatchIsOverWhenItsCallsAre(t *testing.T) {
	up := newGate()
	w := setup{registry: batchFile()}.world(t, up.serve, of("t", roomy("k")))
	over, recorded := make(chan struct{}), 0
	w.ledger.at = func(r *receipts.Record) {
		if r.Kind == receipts.KindOutcome {
			select {
			case <-over:
			case <-time.After(100 * time.Millisecond): // for whoever does not wait to be seen not to
			}
		}
	}
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer close(over)
		defer func() { recorded = len(w.ledger.all()) }()
		w.gateway.Handler().ServeHTTP(rw, r)
	}))
	defer front.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := w.batchRequest("k", batchOf(times(5, plainCall("tools", ""))...)).WithContext(ctx)
	of, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Host = of.Host
	gone := make(chan error, 1)
	go func() {
		res, err := front.Client().Do(r)
		if err == nil {
			_ = res.Body.Close()
		}
		gone <- err
	}()
	up.holds(t, 2)
	cancel()
	if soon(t, gone) == nil {
		t.Error("a batch that was given up has an answer")
	}
	<-over
	if recorded != 4 {
		t.Errorf("%d records when the batch was over, want an intent and an outcome of both calls", recorded)
	}
}

// TestBatchWhoseKeyGoes: what runs ends, the rest is refused, and the client is told.
func TestBatchWhoseKeyGoes(t *testing.T) {
	up := newGate()
	w := setup{registry: batchFile()}.world(t, up.serve, of("t", roomy("k")))
	got := w.inBackground("k", batchOf(times(5, plainCall("tools", ""))...))
	up.holds(t, 2)
	w.use(batchFile(), roomy("another"))
	results := w.results(soon(t, got))
	if want := strings.TrimSpace(strings.Repeat("401unauthenticated ", 5)); statuses(results) != want {
		t.Errorf("%s", statuses(results))
	}
	for i, r := range results {
		if ran := r.Headers["X-Should-Retry"] == "false"; ran != (i < 2) {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	eventually(t, "the two that ran are cut", func() bool { _, _, all, cut := up.counts(); return all == 2 && cut == 2 })
	if got := fmt.Sprint(w.endings()); got != "map[revoked:2 unauthenticated:3]" {
		t.Error(got)
	}
	eventually(t, "the slots are free", func() bool { return w.inFlight("tenant:t") == 0 })
}

// TestBatchOfABlockedTenant: as by themselves.
func TestBatchOfABlockedTenant(t *testing.T) {
	up := newGate()
	w := setup{registry: batchFile()}.world(t, up.serve, of("t", roomy("k")))
	got := w.inBackground("k", batchOf(times(3, plainCall("tools", ""))...))
	up.holds(t, 2)
	w.limiter.Block(0, "tenant:t")
	w.gateway.Block("tenant:t")
	if results := w.results(soon(t, got)); statuses(results) != "403tenant_blocked 403tenant_blocked 403tenant_blocked" {
		t.Errorf("%s", statuses(results))
	}
}

// TestBatchAnswers: each kind of answer has its result, and what cannot be kept to its end
// is a refusal that says that the service was called.
func TestBatchAnswers(t *testing.T) {
	large := strings.Repeat("l", 1<<20)
	w := setup{registry: `
services:
  s:
    base_url: "%[1]s"
    allow_private: true
    actions:
      get: {method: GET, path: "/{what}", params: {what: string}}
      head: {method: HEAD, path: /json}
`}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		switch r.URL.Path {
		case "/json":
			h.Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, `{"a":[1,2]}`)
		case "/events":
			h.Set("Content-Type", "text/event-stream")
			for range 3 {
				send(rw, event)
			}
		case "/204":
			rw.WriteHeader(204)
		case "/304":
			h.Set("Etag", `"x"`)
			rw.WriteHeader(304)
		case "/302":
			h.Set("Location", "/json")
			rw.WriteHeader(302)
		case "/500":
			http.Error(rw, "no", 500)
		case "/most":
			_, _ = io.WriteString(rw, large)
		case "/over", "/told": // by the last byte: of a body that its end tells of, and of one that says how long it is
			if r.URL.Path == "/told" {
				h.Set("Content-Length", strconv.Itoa(len(large)+1))
			}
			_, _ = io.WriteString(rw, large+"x")
		case "/more", "/endless":
			for n := 0; r.URL.Path == "/endless" || n < 2; n++ {
				if _, err := io.WriteString(rw, large+"x"); err != nil {
					return
				}
			}
		case "/cut":
			h.Set("Content-Length", "100")
			send(rw, "half")
			panic(http.ErrAbortHandler)
		case "/cookie":
			h.Add("Set-Cookie", "a=1")
			h.Add("Vary", "A")
			h.Add("Vary", "B")
			h.Set("Agentgate-Code", "forged")
		case "/trailer":
			h.Set("Trailer", "X-Sum")
			send(rw, "t")
			h.Set("X-Sum", "7")
			h.Set(http.TrailerPrefix+"Set-Cookie", "b=2")
		case "/gzip":
			h.Set("Content-Encoding", "gzip")
			h.Set("Content-Type", "application/json")
			z := gzip.NewWriter(rw)
			_, _ = io.WriteString(z, "{}")
			_ = z.Close()
		case "/early":
			h.Set("Link", "</x>")
			rw.WriteHeader(103)
			h.Del("Link")
			_, _ = io.WriteString(rw, "late")
		case "/asked":
			_ = json.NewEncoder(rw).Encode(r.Header)
		}
	}, everything("k"))
	get := func(what string) string { return `{"service":"s","action":"get","params":{"what":"` + what + `"}}` }
	kinds := []string{"json", "events", "204", "304", "302", "500", "most", "over", "told", "more", "endless", "cut", "cookie", "trailer", "gzip", "early"}
	var calls []string
	for _, kind := range kinds {
		calls = append(calls, get(kind))
	}
	_, results := w.batch("k", append(calls, `{"service":"s","action":"head"}`)...)
	all := map[string]result{}
	for i, kind := range append(kinds, "head") {
		all[kind] = results[i]
	}
	for kind, want := range map[string]string{
		"json": `200 {"a":[1,2]} json`, "events": `200 ` + string(mustJSON(t, strings.Repeat(event, 3))) + ` text`, "204": "204 null ", "304": "304 null ", "302": "302 null ",
		"500": `500 "no\n" text`, "cookie": "200 null ", "trailer": `200 "t" text`, "early": `200 "late" text`, "head": "200 null ", "most": `200 "` + large + `" text`,
	} {
		if got := fmt.Sprintf("%d %s %s", all[kind].Status, all[kind].Body, all[kind].Encoding); got != want || all[kind].code() != "" {
			t.Errorf("%s: %.300s, want %.300s", kind, got, want)
		}
	}
	if h := all["cookie"].Headers; h["Set-Cookie"] != "" || h["Vary"] != "A, B" || h["Agentgate-Code"] != "" {
		t.Errorf("%v", h)
	}
	if tr := all["trailer"]; fmt.Sprint(tr.Trailers) != "map[X-Sum:7]" || tr.Headers["Trailer"] != "" {
		t.Errorf("%+v", tr)
	}
	if all["304"].Headers["Etag"] != `"x"` || all["302"].Headers["Location"] != "/json" || all["early"].Headers["Link"] != "" {
		t.Errorf("%v %v %v %v", all["304"].Headers, all["302"].Headers, all["head"].Headers, all["early"].Headers)
	}
	if all["gzip"].Encoding != "base64" || all["gzip"].Headers["Content-Encoding"] != "gzip" {
		t.Errorf("%+v", all["gzip"])
	}
	for kind, why := range map[string]string{"over": "more than the 1048576 bytes", "told": "more than the 1048576 bytes", "more": "more than the 1048576 bytes", "endless": "more than the 1048576 bytes", "cut": "broke off in its answer"} {
		r := all[kind]
		if r.Status != 502 || r.code() != "upstream_unreachable" || r.Headers["X-Should-Retry"] != "false" || r.Receipt == "" || !strings.Contains(string(r.Body), why) ||
			!strings.Contains(string(r.Body), r.Receipt) || !strings.Contains(r.Headers["Agentgate-Receipt"], r.Receipt) || r.Headers["X-Request-Id"] == "" {
			t.Errorf("%s: %+v %s", kind, r, r.Body)
		}
	}
	endings := map[string]string{}
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindOutcome {
			endings[r.ID] = fmt.Sprint(r.Status, " ", r.Ending)
		}
	}
	for kind, want := range map[string]string{"json": "200 complete", "most": "200 complete", "over": "200 budget", "told": "200 budget", "more": "200 budget", "endless": "200 budget", "cut": "200 upstream_aborted", "500": "500 complete"} {
		if got := endings[all[kind].Receipt]; got != want {
			t.Errorf("%s: the outcome is %s, want %s", kind, got, want)
		}
	}

	// What is said with the batch, to each of its calls.
	r := w.batchRequest("k", batchOf(get("asked"), get("asked")))
	for name, value := range map[string]string{"Accept": "text/plain", "Accept-Encoding": "gzip, br", "Idempotency-Key": "once", "Last-Event-Id": "7", "Traceparent": "00-1-2-03", "Te": "trailers", "X-Other": "1"} {
		r.Header.Set(name, value)
	}
	for i, r := range w.results(w.do(r)) {
		var asked http.Header
		var text string
		if err := errors.Join(json.Unmarshal(r.Body, &text), json.Unmarshal([]byte(text), &asked)); err != nil {
			t.Fatal(err)
		}
		want := http.Header{"Accept": {"text/plain"}, "Accept-Encoding": {"identity"}, "Idempotency-Key": {fmt.Sprint("once-", i)}, "Traceparent": {"00-1-2-03"}, "User-Agent": {"agentgw/test"}, "X-Request-Id": {r.Headers["X-Request-Id"]}}
		if fmt.Sprint(asked) != fmt.Sprint(want) {
			t.Errorf("call %d was asked with %v, want %v", i, asked, want)
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBatchTimeouts: a service that does not begin to answer costs its own call, and no other.
func TestBatchTimeouts(t *testing.T) {
	up := newGate()
	w := setup{registry: "services:\n" + serviceLine("tools", "timeout: 5s,") + strings.ReplaceAll(serviceLine("quick", ""), "/get/{id}", "/quick/{id}")}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/quick") {
			hello(rw, r)
			return
		}
		up.serve(rw, r)
	}, everything("k"))
	got := w.inBackground("k", batchOf(plainCall("quick", ""), plainCall("tools", ""), plainCall("quick", "")))
	up.holds(t, 1)
	eventually(t, "the others have ended", func() bool { return w.inFlight("key:k") == 1 })
	w.clock.Advance(5 * time.Second)
	if results := w.results(soon(t, got)); statuses(results) != "200 504upstream_timeout 200" {
		t.Errorf("%s", statuses(results))
	}
}

// TestBatchComesInOrderAndAtOnce: a result goes out as soon as it and those before it are
// there, while others run; and it does not overtake one that is not.
func TestBatchComesInOrderAndAtOnce(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/get/0":
			<-first
		case "/get/1":
			<-second
		}
		hello(rw, r)
	}, everything("k"))
	release := func() { once.Do(func() { close(second) }) }
	t.Cleanup(release)
	res := make(chan *http.Response, 1)
	r := w.batchRequest("k", batchOf(getCall(0), getCall(1), getCall(2)))
	go func() {
		got, err := w.server.Client().Do(r)
		if err != nil {
			t.Error(err)
		}
		res <- got
	}()
	eventually(t, "the third has ended", func() bool { return w.inFlight("key:k") == 2 })
	select {
	case <-res:
		t.Error("something came before the first result")
	default:
	}
	close(first)
	got := soon(t, res)
	defer func() { _ = got.Body.Close() }()
	text := bufio.NewReader(got.Body)
	if part, err := text.ReadString('}'); err != nil || !strings.HasPrefix(part, `{"results":[{"status":200`) {
		t.Errorf("%q, %v", part, err)
	}
	eventually(t, "only the second runs", func() bool { return w.inFlight("key:k") == 1 })
	release()
	if rest, err := io.ReadAll(text); err != nil || strings.Count(string(rest), `{"status":200`) != 2 || !strings.HasSuffix(string(rest), "]}") {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestBatchOfAClientThatTakesNothing: its calls end and their slots are free, no call is begun
// whose answer could not be kept, and in the end the client is cut.
func TestBatchOfAClientThatTakesNothing(t *testing.T) {
	t.Parallel()
	const calls, size, manyResults = 64, 512 << 10, 4 << 20
	part := strings.Repeat("x", size)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := setup{ // in which time ends nothing but the client
				registry: strings.Replace(batchFile(), "allow_private: true,", "allow_private: true, timeout: 0s,", 1),
				settings: func(s *config.Settings) { s.StreamIdle = 0 },
			}.world(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, part) }, of("t", roomy("k")))
			ended := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				defer close(ended)
				w.gateway.Handler().ServeHTTP(rw, r)
			}))
			server.EnableHTTP2 = protocol == "HTTP/2"
			server.StartTLS()
			t.Cleanup(server.Close)
			r := w.batchRequest("k", batchOf(times(calls, plainCall("tools", ""))...))
			r.URL.Scheme, r.URL.Host = "https", server.Listener.Addr().String()
			res, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			eventually(t, "more has come than the client may leave, and no slot is held for it", func() bool {
				return w.upstreamRequests() > manyResults/size && w.inFlight("tenant:t") == 0
			})
			eventually(t, "the client is cut", func() bool {
				w.clock.Advance(time.Minute)
				select {
				case <-ended:
					return true
				default:
					return false
				}
			})
			// Besides what may wait there are two calls that run, and what the sockets hold.
			if n := w.upstreamRequests(); n > manyResults/size+2+12 {
				t.Errorf("%d calls were begun", n)
			}
			if rest, err := io.ReadAll(res.Body); err == nil {
				t.Errorf("it looks whole, with %d bytes", len(rest))
			}
			if got := w.endings(); got[string(receipts.Complete)]+got[string(receipts.SlowClient)] != w.upstreamRequests() {
				t.Errorf("%v of %d", got, w.upstreamRequests())
			}
		})
	}
}

// TestBatchWithADelegation: the one that comes with a batch is held against each of its calls.
func TestBatchWithADelegation(t *testing.T) {
	w := delegated(t, hello, nil)
	token, _ := w.issue(func(g *delegation.Grant) { g.Details = g.Details[1:] }) // signed alone
	r := w.batchRequest("planner", `{"on_behalf_of":"alice","calls":[`+plainCall("signed", "")+`,`+plainCall("tools", "")+`]}`)
	r.Header.Set("Agentgate-Delegation", token)
	if results := w.results(w.do(r)); statuses(results) != "200 403delegation_invalid" {
		t.Errorf("%s", statuses(results))
	}
	_, results := w.batch("planner", plainCall("signed", "alice"), plainCall("tools", "alice"))
	if statuses(results) != "403delegation_required 200" {
		t.Errorf("%s", statuses(results))
	}
	for _, rec := range w.ledger.all()[:1] {
		if len(rec.Chain) != 1 && rec.Service == "signed" {
			t.Errorf("%+v", rec)
		}
	}
}

// TestBatchWithFaults: a fault of the gateway's own, and a log that fails, cost the call that
// they are of.
func TestBatchWithFaults(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	_, results := w.batch("k", getCall(1), plainCall("tools", "panic"), getCall(2))
	if statuses(results) != "200 500internal 200" {
		t.Errorf("%s", statuses(results))
	}
	if !strings.Contains(w.logged.String(), "a fault of ours") || strings.Count(w.logged.String(), "a handler panicked") != 1 {
		t.Errorf("%s", w.logged.String())
	}
	w.ledger.mu.Lock()
	w.ledger.fail = errors.New("the disk is full")
	w.ledger.mu.Unlock()
	_, results = w.batch("k", getCall(1), getCall(2))
	if statuses(results) != "503receipt_unavailable 503receipt_unavailable" || results[0].Receipt != "" {
		t.Errorf("%s %q", statuses(results), results[0].Receipt)
	}
	if n := w.inFlight("key:k"); n != 0 || w.upstreamRequests() != 2 {
		t.Errorf("%d slots are taken, %d calls were made", n, w.upstreamRequests())
	}
}

// TestBatchRequests: what is not a batch is refused as a whole, with a receipt, and nobody is
// called.
func TestBatchRequests(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.MaxRequestBody = 10_000 }}.world(t, hello, everything("k"))
	for _, c := range []struct {
		name, body string
		change     func(*http.Request)
		status     int
		code       string
	}{
		{"a GET", "", func(r *http.Request) { r.Method, r.Body = "GET", nil }, 405, "method_not_allowed"},
		{"no key", batchOf(getCall(1)), func(r *http.Request) { r.Header.Del("Authorization") }, 401, "unauthenticated"},
		{"a form", batchOf(getCall(1)), func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "bad_request"},
		{"too large", batchOf(times(200, getCall(1))...), nil, 413, "body_too_large"},
		{"sixty-five", batchOf(times(65, getCall(1))...), nil, 400, "bad_request"},
		{"none", batchOf(), nil, 400, "bad_request"},
		{"one that cannot be read", batchOf(getCall(1), `{"service":"tools"}`), nil, 400, "bad_request"},
		{"a batch in a batch", batchOf(batchOf(getCall(1))), nil, 400, "bad_request"},
	} {
		r := w.batchRequest("k", c.body)
		if c.change != nil {
			c.change(r)
		}
		records := len(w.ledger.all())
		got := w.do(r)
		got.want(t, c.name, c.status, c.code, "")
		if all := w.ledger.all(); len(all) != records+1 || all[records].Kind != receipts.KindRefusal || got.header.Get("Agentgate-Receipt") == "" {
			t.Errorf("%s: %+v", c.name, all[records:])
		}
	}
	if n := w.upstreamRequests(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}
