package gateway_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// TestTunnelWithoutAKey: 407 to the byte, the same whatever was wrong, with the challenge
// that clients of proxies answer; and a key in another field is none.
func TestTunnelWithoutAKey(t *testing.T) {
	w := tunnelWorld(t, `{allow: ["a.example:443"]}`, everything("k"))
	stranger, _ := identity.NewKey()
	basic := func(pair string) string {
		return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
	}
	for name, header := range map[string][]string{
		"nothing":                 nil,
		"nonsense":                {"Proxy-Authorization: nonsense"},
		"another's key":           {basic("x:" + stranger.Reveal())},
		"another's key, bearer":   {"Proxy-Authorization: Bearer " + stranger.Reveal()},
		"the key as the user":     {basic(w.keys["k"] + ":")},
		"the key in other fields": {"Authorization: Bearer " + w.keys["k"], "X-Api-Key: " + w.keys["k"], "Agentgate-Key: " + w.keys["k"]},
	} {
		c := w.connect("a.example:443", "", header...)
		c.refused(407, "unauthenticated", "")
		h := c.res.Header
		id := h.Get("X-Request-Id")
		for _, varies := range []string{"X-Request-Id", "Date", "Agentgate-Receipt"} {
			if h.Get(varies) == "" {
				t.Errorf("%s: no %s", name, varies)
			}
			h.Del(varies)
		}
		var got strings.Builder
		_ = h.Write(&got)
		receipt := c.body[strings.Index(c.body, `"receipt":"`)+11:][:32]
		body := strings.Replace(c.body, receipt, "RECEIPT", 1)
		want := "Agentgate-Code: unauthenticated\r\nCache-Control: no-store\r\n" + fmt.Sprintf("Content-Length: %d\r\n", len(c.body)) +
			"Content-Type: application/problem+json\r\nProxy-Authenticate: Basic realm=\"agentgate\"\r\n"
		if got.String() != want || id == "" || !c.res.Close {
			t.Errorf("%s:\n%s\nwant\n%s", name, got.String(), want)
		}
		if body != `{"type":"about:blank","title":"Proxy Authentication Required","status":407,"detail":"send a valid gateway key in Proxy-Authorization, as Bearer agw_... or as the password of Basic: http://x:agw_...@GATEWAY","code":"unauthenticated","receipt":"RECEIPT"}` {
			t.Errorf("%s: %s", name, body)
		}
	}
	for _, r := range w.ledger.all() {
		if r.Kind != receipts.KindRefusal || r.Status != 407 || r.Code != "unauthenticated" || r.Key != "" || r.Action != "" {
			t.Errorf("%+v", r)
		}
	}
	if n := len(w.ledger.all()); n != 6 {
		t.Errorf("%d records", n)
	}
	w.connect("a.example:443", "", w.withKey("k"), w.withKey("k")).refused(400, "bad_request", "")
}

// TestTunnelIsRefusedByTheFirstStep: a CONNECT that is faulty at every step moves down the
// list as the faults go, and the target is dialled by none but the last.
func TestTunnelIsRefusedByTheFirstStep(t *testing.T) {
	dialled := make(chan bool, 10)
	to := far(t, func(*net.TCPConn) { dialled <- true })
	_, port, _ := net.SplitHostPort(to)
	section := fmt.Sprintf("{allow: [%q, \"localhost:%s\", \"gone.invalid:1\"], bytes_per_window: 10}", to, port)
	w := tunnelWorld(t, section,
		&identity.Key{ID: "k", Services: []string{"tunnels"}, Actions: []string{"tunnels.127.*"}, Users: []string{"ann"}, Tenant: "small", Limits: &identity.Limits{RPS: 0.001, Burst: 9}},
		&identity.Key{ID: "elsewhere", Services: []string{"tools"}, Users: []string{"*"}, Tenant: "small"},
		&identity.Key{ID: "star", Services: []string{"*"}, Actions: []string{"tools.*"}, Users: []string{"*"}, Tenant: "small"})
	key, ann := w.withKey("k"), "Agentgate-On-Behalf-Of: ann"
	off := setup{}.world(t, hello, everything("k"))

	off.connect(to, "").refused(407, "unauthenticated", "")
	off.connect(to, "", off.withKey("k")).refused(405, "method_not_allowed", "")
	off.connect("nonsense", "", "Authorization: Bearer "+off.keys["k"]).refused(405, "method_not_allowed", "")

	w.connect("nonsense", "").refused(407, "unauthenticated", "")
	w.connect("nonsense", "", key).refused(400, "bad_request", "")                                       // 1 of 9
	w.connect(to, "", key, "X_Odd: 1").refused(400, "bad_request", "")                                   // 2
	w.connect(to, "x", key, "Content-Length: 1").refused(400, "bad_request", "")                         // 3
	w.connect(to, "0\r\n\r\n", key, "Transfer-Encoding: chunked").refused(400, "bad_request", "")        // 4
	w.connect("a.example:443", "", w.withKey("elsewhere")).refused(403, "scope_denied", "")              //
	w.connect(to, "", w.withKey("star")).refused(403, "scope_denied", "")                                //
	w.connect("a.example:443", "", key).refused(403, "scope_denied", "")                                 // 5: off the list
	w.connect("localhost:"+port, "", key).refused(403, "scope_denied", "")                               // 6: not of this key
	w.connect(to, "", key).refused(403, "scope_denied", "")                                              // 7: for nobody
	w.connect(to, "", key, "Agentgate-On-Behalf-Of: bob").refused(403, "scope_denied", "")               // 8
	w.connect(to, "", key, ann, "Agentgate-Delegation: nonsense").refused(403, "delegation_invalid", "") // 9, 1 of the tenant's 2
	w.connect("nonsense", "", key).refused(429, "rate_limited", "key")                                   //
	w.clock.Advance(time.Hour)                                                                           //
	guarded := w.connect(to, "", key, ann)                                                               //
	guarded.refused(502, "upstream_unreachable", "")                                                     // the address is private
	if !strings.Contains(guarded.body, "tunnels.allow_private") || guarded.res.Header.Get("X-Should-Retry") != "" {
		t.Error(guarded.body)
	}
	if len(dialled) > 0 {
		t.Error("the target was dialled")
	}
	var kinds []string
	for _, r := range w.ledger.all() {
		kinds = append(kinds, string(r.Kind)+":"+r.Code)
		if r.Code == "scope_denied" && (r.Service != "tunnels" || !strings.Contains(r.Action, ":") || r.Params == nil) {
			t.Errorf("%+v", r)
		}
	}
	if got := strings.Join(kinds, " "); got != "refusal:unauthenticated refusal:bad_request refusal:bad_request refusal:bad_request refusal:bad_request "+
		"refusal:scope_denied refusal:scope_denied refusal:scope_denied refusal:scope_denied refusal:scope_denied refusal:scope_denied refusal:delegation_invalid "+
		"refusal:rate_limited intent: outcome:upstream_unreachable" {
		t.Error(got)
	}
	if n := w.inFlight("tenant:small"); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
	if n := w.counted("scope_denied", ""); n != 6 {
		t.Errorf("%d counted", n)
	}
}

// TestAProxyOfPlainHTTPIsTold: who takes the gateway for a proxy of http:// is told what it is
// one for, whether his key is valid or not.
func TestAProxyOfPlainHTTPIsTold(t *testing.T) {
	w := tunnelWorld(t, `{allow: ["a.example:80"]}`, everything("k"))
	for _, header := range []string{w.withKey("k"), "Proxy-Authorization: Basic eDp5"} {
		res, body := w.send("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n" + header + "\r\n\r\n")
		if res.StatusCode != 401 || !strings.Contains(body, "this gateway takes CONNECT alone") || !strings.Contains(body, "--proxytunnel") {
			t.Errorf("%s %s", res.Status, body)
		}
	}
	if _, body := w.send("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n"); strings.Contains(body, "proxy") {
		t.Error(body)
	}
}

// TestTunnelTakesNothingWhereItsBytesAreUsedUp but the key's token, though the tenant's
// bucket refuses too; and what is told is the longest wait.
func TestTunnelTakesNothingWhereItsBytesAreUsedUp(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true, bytes_per_window: 3, window: 30s}", to),
		&identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "small"})
	c := w.open(to, "k")
	c.say("abc")
	c.hear("abc")
	_ = c.Close()
	w.outcomes(1)
	for range 3 { // the tenant has a token left, for the tunnel that comes when the window is over
		got := w.connect(to, "", w.withKey("k"))
		got.refused(429, "rate_limited", "tunnel_bytes")
		if wait := got.res.Header.Get("Retry-After"); wait < "30" || wait > "36" {
			t.Error(wait)
		}
		if !strings.Contains(got.body, "may carry 3 bytes in 30s, up and down together, and have; wait 30s and call again") {
			t.Error(got.body)
		}
		if state := got.res.Header.Get("RateLimit"); !strings.Contains(state, `"tunnel_bytes";r=0;t=30`) || !strings.Contains(state, `"tenant";r=1`) {
			t.Error(state)
		}
	}
	w.clock.Advance(30*time.Second - time.Nanosecond)
	w.connect(to, "", w.withKey("k")).refused(429, "rate_limited", "tunnel_bytes")
	w.clock.Advance(time.Nanosecond)
	w.open(to, "k")
}

// TestATunnelWaitsForItsSlotInVain where its caller's bytes are used up meanwhile: it is
// refused for that, with nothing taken but the key's token, and carries none.
func TestATunnelWaitsForItsSlotInVain(t *testing.T) {
	for _, how := range []string{"finish", "cut"} {
		t.Run(how, func(t *testing.T) {
			to := far(t, echoes)
			w := setup{
				registry: worldRegistry + fmt.Sprintf("tunnels: {allow: [%q], allow_private: true, bytes_per_window: 3, on_exhausted: %s}\n", to, how),
				settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = 1, time.Minute },
			}.world(t, hello, &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "small"})
			first := w.open(to, "k")
			waited := make(chan *through, 1)
			go func() { waited <- w.connect(to, "", w.withKey("k")) }()
			eventually(t, "a tunnel waits, and has taken its tokens", func() bool {
				return w.waiting() == 1 && w.tokens(ratelimit.KindTenant, "tenant:small", 1, 2) == 0
			})
			first.say("abc")
			if how == "finish" {
				first.hear("abc")
				first.halfClose()
			}
			_, _ = io.ReadAll(first)
			got := <-waited
			got.refused(429, "rate_limited", "tunnel_bytes")
			if state := got.res.Header.Get("RateLimit"); !strings.Contains(state, `"tunnel_bytes";r=0;t=3600`) || !strings.Contains(state, `"tenant";r=1`) || !strings.Contains(state, `"key";r=38`) {
				t.Error(state)
			}
			if w.inFlight("tenant:small") != 0 || w.waiting() != 0 {
				t.Error("a slot is taken, or somebody waits")
			}
			if n := w.counted("waited", "refused"); n != 1 {
				t.Errorf("%d waits were told of as refused", n)
			}
			if n := w.recorded(receipts.KindRefusal, "rate_limited", "tunnel_bytes"); n != 1 || len(w.outcomes(1)) != 1 {
				t.Errorf("%d refusals in %+v", n, w.ledger.all())
			}
		})
	}
}

// TestATunnelWhoseBytesGoWhileItBegins ends with them, as those do that are open: it says
// nothing and hears nothing, so no byte of it would meet the budget.
func TestATunnelWhoseBytesGoWhileItBegins(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true, bytes_per_window: 3, on_exhausted: cut}", to), wide("k"))
	opened := make(chan *through, 1)
	var intents atomic.Int32
	w.ledger.at = func(r *receipts.Record) {
		if r.Kind == receipts.KindIntent && intents.Add(1) == 2 { // it is admitted, and not under way
			first := <-opened
			first.say("abc")
			_, _ = io.ReadAll(first)
		}
	}
	opened <- w.open(to, "k")
	second := w.connect(to, "", w.withKey("k"))
	if second.res.StatusCode == 200 {
		if rest, err := io.ReadAll(second); len(rest) > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it hears %q and %v", rest, err)
		}
	}
	if n := w.recorded(receipts.KindOutcome, "", ""); len(w.outcomes(2)) != 2 || n != 2 {
		t.Errorf("%d outcomes", n)
	}
	if last := w.lastClosing(); last.Ending != receipts.Budget || last.In+last.Out != 0 {
		t.Errorf("%+v", last)
	}
}

// recorded is how many records there are of that kind, code and limit.
func (w *world) recorded(kind receipts.Kind, code, limit string) (n int) {
	for _, r := range w.ledger.all() {
		if r.Kind == kind && r.Code == code && r.Limit == limit {
			n++
		}
	}
	return n
}

// TestWhatComesBehindARefusedConnectIsNoRequest though it looks like one: the connection
// is closed behind the refusal.
func TestWhatComesBehindARefusedConnectIsNoRequest(t *testing.T) {
	w := tunnelWorld(t, `{allow: ["a.example:443"]}`, everything("k"))
	inner := "POST /v1/act HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nAuthorization: Bearer " + w.keys["k"] + "\r\n" +
		"Content-Length: 61\r\n\r\n" + `{"service":"tools","action":"get","params":{"id":"smuggled"}}`
	for name, c := range map[string]*through{
		"off the list":   w.connect("b.example:443", inner, w.withKey("k")),
		"without a key":  w.connect("a.example:443", inner),
		"with a length":  w.connect("a.example:443", inner, w.withKey("k"), fmt.Sprintf("Content-Length: %d", len(inner))),
		"with a short":   w.connect("a.example:443", "x"+inner, w.withKey("k"), "Content-Length: 1"),
		"in chunks":      w.connect("a.example:443", "0\r\n\r\n"+inner, w.withKey("k"), "Transfer-Encoding: chunked"),
		"to no host":     w.connect("a.example", inner, w.withKey("k")),
		"to a path":      w.connect("a.example:443/x", inner, w.withKey("k")),
		"to a URL":       w.connect("http://a.example:443", inner, w.withKey("k")),
		"to another try": w.connect("a.example:443@b.example:443", inner, w.withKey("k")),
		"for act":        w.connect("/v1/act", inner, "Authorization: Bearer "+w.keys["k"]),
		"for a service":  w.connect("/proxy/tools/get/1", inner, "Authorization: Bearer "+w.keys["k"]),
		"for no path":    w.connect("/nothing", inner, w.withKey("k")),
	} {
		if c.res.StatusCode < 400 || !c.res.Close {
			t.Errorf("%s: %s, closed: %v", name, c.res.Status, c.res.Close)
		}
		if rest, _ := io.ReadAll(c); len(rest) > 0 {
			t.Errorf("%s: another answer: %q", name, rest)
		}
	}
	if n := w.upstreamRequests(); n != 0 {
		t.Errorf("%d calls", n)
	}
	// A CONNECT for a path is a request like others at that path.
	for _, line := range []string{"/v1/act", "/proxy/tools/get/1"} {
		c := w.connect(line, "", "Authorization: Bearer "+w.keys["k"])
		if c.res.StatusCode != 405 {
			t.Errorf("%s: %s", line, c.res.Status)
		}
	}
}

// TestNoTunnelOverHTTP2: it is refused as what is not allowed, over TLS and without, and
// nobody is dialled. Its connection may be others' too, and goes on.
func TestNoTunnelOverHTTP2(t *testing.T) {
	for _, protocol := range []string{"HTTP/2", "h2c"} {
		t.Run(protocol, func(t *testing.T) {
			dialled := make(chan bool, 10)
			to := far(t, func(*net.TCPConn) { dialled <- true })
			w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), everything("k"))
			w.front(protocol)
			ways := map[string]bool{}
			for _, key := range []string{"", "Bearer " + w.keys["k"]} {
				r, err := http.NewRequest(http.MethodConnect, w.server.URL, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = to
				r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { ways[c.Conn.LocalAddr().String()] = true }}))
				if key != "" {
					r.Header.Set("Proxy-Authorization", key)
				}
				res, err := w.server.Client().Transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if want := map[bool]int{true: 407, false: 405}[key == ""]; res.StatusCode != want || res.ProtoMajor != 2 {
					t.Errorf("%s %s %s", res.Proto, res.Status, body)
				}
			}
			if len(dialled) > 0 {
				t.Error("the target was dialled")
			}
			if len(ways) != 1 {
				t.Errorf("over %d connections", len(ways))
			}
		})
	}
}

// TestTunnelsWhileDraining: none is opened.
func TestTunnelsWhileDraining(t *testing.T) {
	w := tunnelWorld(t, `{allow: ["a.example:443"]}`, everything("k"))
	w.gateway.Drain()
	w.connect("a.example:443", "", w.withKey("k")).refused(503, "draining", "")
}

// TestTunnelWithoutAReceipt: what cannot be recorded is not opened.
func TestTunnelWithoutAReceipt(t *testing.T) {
	dialled := make(chan bool, 1)
	to := far(t, func(*net.TCPConn) { dialled <- true })
	for _, intent := range []string{"always", "writes", "never"} {
		w := setup{
			registry: worldRegistry + fmt.Sprintf("tunnels: {allow: [%q], allow_private: true}\n", to),
			settings: func(s *config.Settings) { s.ReceiptIntent = intent },
		}.world(t, hello, everything("k"))
		w.ledger.fail = receipts.ErrUnavailable
		w.connect(to, "", w.withKey("k")).refused(503, "receipt_unavailable", "")
		if len(dialled) > 0 {
			t.Errorf("%s: it was dialled", intent)
		}
	}
}
