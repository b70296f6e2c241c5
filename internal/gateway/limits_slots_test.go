package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// TestFailedCallsKeepNoSlot: under a cap of one, a call that fails on its way,
// wherever, leaves room for the next one.
func TestFailedCallsKeepNoSlot(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := "http://" + nobody.Addr().String()
	_ = nobody.Close()
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(hello)) // a certificate that nobody vouches for
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
	stranger.StartTLS()
	t.Cleanup(stranger.Close)

	at := func(name, url, attributes string) string {
		return strings.Replace(serviceLine(name, attributes), "%[1]s", url, 1)
	}
	file := "tenants:\n  t: {rps: 1000, burst: 2000, max_inflight: 1}\nservices:\n" + serviceLine("tools", "") +
		at("nameless", "http://gone-.example", "") + // no resolver takes a label that ends with a hyphen
		at("refusing", refusing, "") + at("untrusted", stranger.URL, "") +
		serviceLine("keyed", "credential: {type: bearer},") + serviceLine("signed", "delegation: required,")
	reached := make(chan struct{}, 1)
	w := setup{registry: file, settings: func(s *config.Settings) { s.MaxRequestBody = 1000 }}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/get/away":
			http.Redirect(rw, r, "http://elsewhere.example/", http.StatusFound)
		case "/get/silent":
			reached <- struct{}{}
			<-r.Context().Done()
		default:
			hello(rw, r)
		}
	}, of("t", roomy("all")), of("t", &identity.Key{ID: "narrow", Services: []string{"tools"}, Users: []string{"u"}}))

	long := strings.Repeat(" ", 1000) + plainCall("tools", "")
	undeclared := func() told {
		r := w.request(context.Background(), "all", "")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(long)), -1
		return w.do(r)
	}
	silent := func() told {
		go func() {
			<-reached
			w.clock.Advance(30 * time.Second)
		}()
		return w.act("all", strings.Replace(plainCall("tools", ""), `"1"`, `"silent"`, 1))
	}
	send := func(key, body string) func() told { return func() told { return w.act(key, body) } }
	for _, c := range []struct {
		name, code string
		status     int
		fail       func() told
	}{
		{"invalid JSON", "bad_request", 400, send("all", `{"service":`)},
		{"unknown action", "action_not_found", 404, send("all", actBody("tools", "fly", "", ""))},
		{"unknown service", "service_not_found", 404, send("all", plainCall("none", ""))},
		{"service out of scope", "scope_denied", 403, send("narrow", plainCall("keyed", "u"))},
		{"user out of scope", "scope_denied", 403, send("narrow", plainCall("tools", "v"))},
		{"oversized body", "body_too_large", 413, send("all", long)},
		{"oversized body of no declared length", "body_too_large", 413, undeclared},
		{"delegation missing", "delegation_required", 403, send("all", plainCall("signed", ""))},
		{"credential missing", "credential_missing", 403, send("all", plainCall("keyed", ""))},
		{"parameter missing", "bad_params", 400, send("all", actBody("tools", "get", "", ""))},
		{"name that does not resolve", "upstream_unreachable", 502, send("all", plainCall("nameless", ""))},
		{"connection refused", "upstream_unreachable", 502, send("all", plainCall("refusing", ""))},
		{"certificate not trusted", "upstream_unreachable", 502, send("all", plainCall("untrusted", ""))},
		{"redirect away", "upstream_redirect", 502, send("all", strings.Replace(plainCall("tools", ""), `"1"`, `"away"`, 1))},
		{"no answer in time", "upstream_timeout", 504, silent},
	} {
		got := c.fail()
		got.want(t, c.name, c.status, c.code, "")
		if n := w.inFlight("tenant:t"); n != 0 {
			t.Errorf("%s: %d in flight when the refusal is there", c.name, n)
		}
		w.act("all", plainCall("tools", "")).want(t, "a good call after: "+c.name, 200, "", "")
		if n := w.inFlight("tenant:t"); n != 0 {
			t.Errorf("a good call after %s: %d in flight when its answer is there", c.name, n)
		}
	}
	var causes []string
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindOutcome && r.Code == "upstream_unreachable" {
			causes = append(causes, r.Service)
		}
	}
	if fmt.Sprint(causes) != "[nameless refusing untrusted]" {
		t.Errorf("outcomes of the unreachable: %v", causes)
	}
}

// TestPeakIsTheCap: of 200 calls at once, nearly a third of them to a service
// that refuses connections, never more than three are at the upstream; three are
// at the end, and then nothing is.
func TestPeakIsTheCap(t *testing.T) {
	var now, peak atomic.Int64
	leave := make(chan struct{})
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file := "tenants:\n  t: {rps: 1000, burst: 2000, max_inflight: 3}\nservices:\n" + serviceLine("tools", "") +
		strings.Replace(serviceLine("refusing", ""), "%[1]s", "http://"+nobody.Addr().String(), 1)
	_ = nobody.Close()
	w := setup{registry: file}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		<-leave
		hello(rw, r)
	}, of("t", roomy("k")))

	const calls = 200
	var mu sync.Mutex
	counts := map[string]int{}
	start := make(chan struct{})
	var storm, held sync.WaitGroup
	call := func(service string) {
		got := w.act("k", plainCall(service, ""))
		mu.Lock()
		defer mu.Unlock()
		counts[fmt.Sprint(got.status, " ", got.code)]++
	}
	answered := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range counts {
			n += c
		}
		return n
	}
	for i := range calls {
		service := "tools"
		if i%10 < 3 {
			service = "refusing"
		}
		storm.Go(func() { <-start; call(service) })
	}
	close(start)
	eventually(t, "all are answered but those at the upstream", func() bool { return int64(answered())+now.Load() == calls })
	// In the storm, failing calls may have held the slots for which good ones came.
	for now.Load() < 3 {
		before := now.Load()
		held.Go(func() { call("tools") })
		eventually(t, "a free slot is taken", func() bool { return now.Load() == before+1 })
	}
	w.act("k", plainCall("tools", "")).want(t, "a fourth", 429, "concurrency_limited", "tenant")
	close(leave)
	storm.Wait()
	held.Wait()
	if p := peak.Load(); p != 3 {
		t.Errorf("the peak at the upstream was %d, want exactly 3", p)
	}
	if n := w.inFlight("tenant:t"); n != 0 {
		t.Errorf("%d in flight at the end", n)
	}
	for outcome := range counts {
		switch outcome {
		case "200 ", "429 concurrency_limited", "502 upstream_unreachable":
		default:
			t.Errorf("%d answers were %q", counts[outcome], outcome)
		}
	}
	if counts["429 concurrency_limited"] == 0 || counts["200 "] < 3 {
		t.Errorf("%v: the cap was not reached", counts)
	}
}

// slowToStop is a clock whose timers take until let to stop.
type slowToStop struct {
	*clockwork.FakeClock
	let chan struct{}
}

type slowTimer struct {
	clockwork.Timer
	let chan struct{}
}

func (c slowToStop) AfterFunc(d time.Duration, f func()) clockwork.Timer {
	return slowTimer{c.FakeClock.AfterFunc(d, f), c.let}
}

func (t slowTimer) Stop() bool {
	<-t.let
	return t.Timer.Stop()
}

// TestSlotIsFreeWithTheLastByte: when the client has the whole of an answer, the
// slot is free and the outcome recorded, although the gateway is not yet done
// with the call.
func TestSlotIsFreeWithTheLastByte(t *testing.T) {
	const event = "data: the only one\n\n"
	let := make(chan struct{})
	// The one timer is then the upstream call's, which is stopped when the answer
	// has been written and before the call is done.
	w := setup{
		settings: func(s *config.Settings) { s.ClientStall = 0 },
		clock:    func(c *clockwork.FakeClock) clockwork.Clock { return slowToStop{c, let} },
	}.
		world(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream") // so that it is not left in a buffer
			rw.Header().Set("Content-Length", strconv.Itoa(len(event)))
			_, _ = io.WriteString(rw, event)
		}, everything("k"))
	defer close(let) // the gateway goes on
	got := w.act("k", streamCall("tools", ""))
	got.want(t, "the answer", 200, "", "")
	if n := w.inFlight("key:k"); got.body != event || n != 0 {
		t.Errorf("with the whole answer (%q) there, %d are in flight", got.body, n)
	}
	if records := w.ledger.all(); len(records) != 2 || records[1].Kind != receipts.KindOutcome || records[1].Ending != receipts.Complete {
		t.Errorf("with the whole answer there, the records are %+v", records)
	}
}

// TestHangUpsAreNoRefusals: metrics count a call that was admitted as such, also
// when its client hangs up, before the answer or in it, or its upstream dies.
func TestHangUpsAreNoRefusals(t *testing.T) {
	reached := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			rw.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		}
		reached <- struct{}{}
		<-r.Context().Done()
	}, everything("k"))
	for range 5 {
		ctx, hangUp := context.WithCancel(context.Background())
		go func() {
			<-reached
			hangUp()
		}()
		if _, err := w.server.Client().Do(w.request(ctx, "k", plainCall("tools", ""))); err == nil {
			t.Fatal("an answer nonetheless")
		}
		res, err := w.server.Client().Do(w.request(context.Background(), "k", streamCall("tools", "")))
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		if err == nil {
			t.Error("the broken stream looks whole")
		}
	}
	eventually(t, "all are counted", func() bool { return w.counted("", "") == 10 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.decided) != 1 {
		t.Errorf("counted: %v", w.decided)
	}
}
