package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/hangup"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/secret"
	"agentgw/internal/vault"
)

// sdk is an official SDK: a program under interop/ that was written with it.
type sdk struct {
	name, dialect string
	command       []string
	classes       map[int]string // of its errors, by status; nil: one for all
}

// sdks are those that make interop has installed.
func sdks(t *testing.T) []sdk {
	t.Helper()
	node, built := os.Getenv("INTEROP_NODE"), os.Getenv("INTEROP_SDKS")
	if node == "" || built == "" {
		t.Skip("make interop asks the official SDKs")
	}
	const script = "../../interop/sdks.mjs"
	openai := map[int]string{400: "BadRequestError", 401: "AuthenticationError", 403: "PermissionDeniedError", 413: "APIError", 429: "RateLimitError",
		502: "InternalServerError", 503: "InternalServerError", 504: "InternalServerError"}
	anthropic := map[int]string{400: "BadRequestError", 401: "AuthenticationError", 403: "PermissionDeniedError", 413: "ContentTooLargeError", 429: "RateLimitError",
		502: "InternalServerError", 503: "ServiceUnavailableError", 504: "GatewayTimeoutError"}
	return []sdk{
		{"openai-go", "openai", []string{built, "openai"}, nil},
		{"openai", "openai", []string{node, script, "openai"}, openai},
		{"openai 6", "openai", []string{node, script, "openai-node20"}, openai},
		{"anthropic-sdk-go", "anthropic", []string{built, "anthropic"}, nil},
		{"@anthropic-ai/sdk", "anthropic", []string{node, script, "anthropic"}, anthropic},
	}
}

// class is what the SDK calls an error of this status.
func (s sdk) class(status int) string {
	if s.classes == nil {
		return s.dialect + ".Error"
	}
	return s.classes[status]
}

// asked is a call as its user makes it, and made what came of it.
type (
	asked struct {
		Model  string `json:"model"` // what the stub is to do
		Stream bool   `json:"stream"`
		Size   int    `json:"size,omitempty"`
	}
	made struct {
		Text  string
		Error *struct {
			Class, Type, Code, Message, Says string
			Status                           int
			RequestID                        string `json:"request_id"`
		}
	}
)

// user is a program that runs, as long as the test does.
type user struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// start runs the program with nothing but a base URL and a key.
func (s sdk) start(t *testing.T, url, key string) *user {
	t.Helper()
	name := strings.ToUpper(s.dialect)
	cmd := exec.CommandContext(t.Context(), s.command[0], s.command[1:]...)
	cmd.Env = []string{"HOME=" + t.TempDir(), name + "_BASE_URL=" + url, name + "_API_KEY=" + key}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &user{t, in, bufio.NewReader(out)}
}

// begin makes a call, and end waits for what comes of it.
func (u *user) begin(a asked) {
	u.t.Helper()
	line, _ := json.Marshal(a)
	if _, err := u.in.Write(append(line, '\n')); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) end() (m made) {
	u.t.Helper()
	line, err := u.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		u.t.Fatalf("%q %v", line, err)
	}
	return m
}

func (u *user) ask(a asked) made {
	u.t.Helper()
	u.begin(a)
	return u.end()
}

// exchange is a request that came to the gateway, and its answer's header.
type exchange struct {
	came, answered time.Time
	status         int
	header         http.Header
}

// door stands before the gateway and notes what comes and goes.
type door struct {
	next http.Handler
	mu   sync.Mutex
	all  []*exchange
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{came: time.Now()}
	d.mu.Lock()
	d.all = append(d.all, x)
	d.mu.Unlock()
	d.next.ServeHTTP(&noting{w, d, x}, r)
}

// take returns what came since it was last called.
func (d *door) take() (list []exchange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.all {
		list = append(list, *x)
	}
	d.all = nil
	return list
}

// last is what came last, or nothing.
func (d *door) last() (x exchange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.all); n > 0 {
		x = *d.all[n-1]
	}
	return x
}

type noting struct {
	http.ResponseWriter
	door *door
	x    *exchange
}

func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }

func (n *noting) WriteHeader(status int) {
	n.door.mu.Lock()
	n.x.answered, n.x.status, n.x.header = time.Now(), status, n.Header().Clone()
	n.door.mu.Unlock()
	n.ResponseWriter.WriteHeader(status)
}

// told is how long the answer says to wait.
func (x exchange) told(t *testing.T) time.Duration {
	t.Helper()
	ms, err := strconv.Atoi(x.header.Get("Retry-After-Ms"))
	if err != nil {
		t.Fatalf("%d %v: %v", x.status, x.header, err)
	}
	return time.Duration(ms) * time.Millisecond
}

// stub speaks both APIs, as far as the SDKs ask it here. What it does it reads off the
// model's name; it keeps the header of each request.
type stub struct {
	mu       sync.Mutex
	requests []http.Header
	before   func() // an answer to the model "unrecorded"
	holds    atomic.Bool
}

func (s *stub) take() (list []http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.requests = s.requests, nil
	return list
}

func (s *stub) serve(w http.ResponseWriter, r *http.Request) {
	var a asked
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		panic(err)
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Header.Clone())
	nth := len(s.requests)
	before := s.before
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	anthropic := r.URL.Path == "/v1/messages"
	if !anthropic && r.URL.Path != "/v1/chat/completions" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch a.Model {
	case "dies":
		panic(http.ErrAbortHandler)
	case "silent":
		<-r.Context().Done()
		return
	case "unrecorded":
		before()
	case "busy":
		if nth == 1 {
			w.Header().Set("Retry-After-Ms", "50")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"its own"}}`)
			return
		}
	}
	if !a.Stream {
		if a.Model == "half" {
			w.Header().Set("Content-Length", "10000")
			send(w, strings.Repeat(" ", 5000))
			panic(http.ErrAbortHandler)
		}
		text := `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello!"},"finish_reason":"stop"}]}`
		if anthropic {
			text = `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello!"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
		}
		_, _ = io.WriteString(w, text)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	events := openAIEvents
	if anthropic {
		events = anthropicEvents
	}
	for i, text := range events {
		if a.Model != "hello" && i == len(events)/2 {
			switch a.Model {
			case "breaks":
				panic(http.ErrAbortHandler)
			case "breaks within":
				send(w, text[:len(text)-2])
				panic(http.ErrAbortHandler)
			case "holds":
				s.holds.Store(true)
				<-r.Context().Done()
				return
			}
		}
		send(w, text)
	}
}

var openAIEvents = []string{
	`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}` + "\n\n",
	`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}` + "\n\n",
	`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"!"},"finish_reason":null}]}` + "\n\n",
	`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n",
	"data: [DONE]\n\n",
}

var anthropicEvents = []string{
	"event: message_start\n" + `data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n",
	"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n",
	"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}` + "\n\n",
	"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}` + "\n\n",
	"event: ping\n" + `data: {"type":"ping"}` + "\n\n",
	"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"!"}}` + "\n\n",
	"event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n",
	"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}` + "\n\n",
	"event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n",
}

const sdksRegistry = `
version: 1
tenants:
  wide: {rps: 100000, burst: 100000}
services:
  openai: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, dialect: openai, credential: {type: bearer}}
  anthropic: {base_url: "%[1]s", allow_private: true, passthrough: true, dialect: anthropic, credential: {type: header, name: x-api-key}}
  openai-quick: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, dialect: openai, timeout: 5s}
  anthropic-quick: {base_url: "%[1]s", allow_private: true, passthrough: true, dialect: anthropic, timeout: 5s}
  openai-gone: {base_url: "http://127.0.0.1:1/v1", allow_private: true, passthrough: true, dialect: openai}
  anthropic-gone: {base_url: "http://127.0.0.1:1", allow_private: true, passthrough: true, dialect: anthropic}
  openai-open: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, access: open}
  anthropic-open: {base_url: "%[1]s", allow_private: true, passthrough: true, access: open}
`

// served is a gateway in real time, with the stub behind it and the door before it.
type served struct {
	*world
	stub *stub
	door *door
	url  string
}

func (s sdk) world(t *testing.T) *served { t.Helper(); return s.worldOf(t, 0) }

// worldOf is one whose open services have a limit for each caller.
func (s sdk) worldOf(t *testing.T, rpm float64) *served {
	t.Helper()
	v := fullVault(t)
	for _, service := range []string{"openai", "anthropic"} {
		if err := v.Set(t.Context(), vault.Ref{Service: service}, vault.Form{}, secret.New("sk-of-the-service"), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	limited := func(id string, rps float64) *identity.Key {
		return &identity.Key{ID: id, Services: []string{"*"}, Users: []string{"*"}, Tenant: "wide", Limits: &identity.Limits{RPS: rps, Burst: 1}}
	}
	w := &served{stub: &stub{}}
	w.world = setup{
		registry: sdksRegistry, vault: v,
		settings: func(s *config.Settings) { s.MaxRequestBody, s.RateCallerRPM, s.RateCallerBurst = 4096, rpm, 1 },
		clock:    func(*clockwork.FakeClock) clockwork.Clock { return clockwork.NewRealClock() },
		limiter: func(o *ratelimit.Options) {
			o.Clock, o.Epoch = ratelimit.NewClock(clockwork.NewRealClock()), time.Now().UnixNano()
		},
	}.world(t, w.stub.serve, wide("k"), wide("blocked"), limited("fifth", 5), limited("slow", 0.2), limited("minutes", 1.0/120), &identity.Key{ID: "other", Services: []string{"other"}, Users: []string{"*"}})
	w.door = &door{next: w.gateway.Handler()}
	server := httptest.NewUnstartedServer(w.door)
	server.Listener = hangup.Listener(server.Listener)
	server.Start()
	t.Cleanup(server.Close)
	w.url = server.URL + "/proxy/"
	return w
}

// TestOfficialSDKs: programs that use the SDKs as they are, of which a base URL and a key
// are all that is the gateway's.
func TestOfficialSDKs(t *testing.T) {
	for _, s := range sdks(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for name, story := range map[string]func(*testing.T, sdk){
				"answers": sdkAnswers, "errors": sdkErrors, "wait 0.2 s": sdkWaitsMillis, "wait 5 s": sdkWaitsSeconds, "open services": sdkOpen, "no wait over a minute": sdkDoesNotWait,
				"tries again": sdkTriesAgain, "does not try again": sdkDoesNotTryAgain, "the service's own": sdkService, "cut streams": sdkCut, "a cut answer": sdkHalf,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					story(t, s)
				})
			}
		})
	}
}

// sdkAnswers: plain and streamed, with the service's credential, once.
func sdkAnswers(t *testing.T, s sdk) {
	w := s.world(t)
	u := s.start(t, w.url+s.dialect, w.keys["k"])
	for _, stream := range []bool{false, true} {
		if got := u.ask(asked{Model: "hello", Stream: stream}); got.Error != nil || got.Text != "Hello!" {
			t.Errorf("streamed %v: %+v", stream, got)
		}
		requests := w.stub.take()
		if len(requests) != 1 {
			t.Fatalf("streamed %v: %d requests", stream, len(requests))
		}
		h := requests[0]
		authorization, key := "Bearer sk-of-the-service", ""
		if s.dialect == "anthropic" {
			authorization, key = "", "sk-of-the-service"
		}
		if h.Get("Authorization") != authorization || h.Get("X-Api-Key") != key || !strings.Contains(fmt.Sprint(h), "X-Stainless-Lang") {
			t.Errorf("the service got %v", h)
		}
		if strings.Contains(fmt.Sprint(h), w.keys["k"]) {
			t.Error("the service got the gateway's key")
		}
	}
}

// sdkErrors: refusals that nobody tries again, each an error of the SDK's own class with
// the request's id in it, after one request, of which none reached the service.
func sdkErrors(t *testing.T, s sdk) {
	w := s.world(t)
	for _, c := range []struct {
		name, key  string
		call       asked
		status     int
		kind, code string
	}{
		{"no key", "no-key", asked{Model: "hello"}, 401, "authentication_error", "invalid_api_key"},
		{"another scope", "other", asked{Model: "hello", Stream: true}, 403, "permission_error", "scope_denied"},
		{"a large body", "k", asked{Model: "hello", Size: 5000}, 413, "request_too_large", "body_too_large"},
	} {
		key := w.keys[c.key]
		if key == "" {
			key = "sk-somebody-elses"
		}
		got := s.start(t, w.url+s.dialect, key).ask(c.call)
		s.failed(t, c.name, got, c.status, c.kind, c.code, w.one(t, c.name))
		if n := len(w.stub.take()); n != 0 {
			t.Errorf("%s: the service got %d requests", c.name, n)
		}
	}
}

// one is the one exchange that there was.
func (w *served) one(t *testing.T, name string) exchange {
	t.Helper()
	all := w.door.take()
	if len(all) != 1 {
		t.Fatalf("%s: the gateway got %d requests", name, len(all))
	}
	return all[0]
}

// failed holds an error that an SDK has made against the answer of which it did.
func (s sdk) failed(t *testing.T, name string, got made, status int, kind, code string, x exchange) {
	t.Helper()
	e := got.Error
	if e == nil || got.Text != "" {
		t.Errorf("%s: %+v; want an error", name, got)
		return
	}
	id := x.header.Get("X-Request-Id")
	if s.dialect == "anthropic" {
		id, code = "req_"+id, ""
	}
	if e.Class != s.class(status) || e.Status != status || e.Type != kind || e.Code != code || e.RequestID != id || len(e.Message) < 20 || x.status != status {
		t.Errorf("%s: %+v\nwant %s of %d, %q, %q, request %q; the gateway answered %d", name, *e, s.class(status), status, kind, code, id, x.status)
	}
}

// sdkWaitsMillis: a refused call is made again after the wait of retry-after-ms, to the
// millisecond, though retry-after can only say a second, and then reaches the service, once.
func sdkWaitsMillis(t *testing.T, s sdk) {
	w := s.world(t)
	w.waitsMillis(t, s.start(t, w.url+s.dialect, w.keys["fifth"]))
}

func (w *served) waitsMillis(t *testing.T, u *user) {
	t.Helper()
	calls, sooner := 0, false
	for range 40 { // the machine may be busy when a second has not passed
		calls++
		if got := u.ask(asked{Model: "hello", Stream: calls%2 == 0}); got.Error != nil || got.Text != "Hello!" {
			t.Fatalf("call %d: %+v", calls, got)
		}
		all := w.door.take()
		if len(all) > 2 {
			t.Fatalf("call %d came %d times", calls, len(all))
		}
		if len(all) == 2 {
			told, waited := all[0].told(t), all[1].came.Sub(all[0].answered)
			if all[0].status != 429 || all[1].status != 200 || all[0].header.Get("Retry-After") != "1" || waited < told-time.Millisecond {
				t.Fatalf("%d, told to wait %s, waited %s, %d", all[0].status, told, waited, all[1].status)
			}
			if sooner = told < 700*time.Millisecond && waited < time.Second; sooner {
				break
			}
		}
	}
	if n := len(w.stub.take()); n != calls || !sooner {
		t.Errorf("%d calls, %d requests at the service; one waited for less than a second: %v", calls, n, sooner)
	}
}

// sdkWaitsSeconds: 5 seconds are waited too.
func sdkWaitsSeconds(t *testing.T, s sdk) {
	w := s.world(t)
	w.waitsSeconds(t, s.start(t, w.url+s.dialect, w.keys["slow"]))
}

func (w *served) waitsSeconds(t *testing.T, u *user) {
	t.Helper()
	for range 2 {
		if got := u.ask(asked{Model: "hello"}); got.Error != nil || got.Text != "Hello!" {
			t.Fatalf("%+v", got)
		}
	}
	all := w.door.take()
	if len(all) != 3 || len(w.stub.take()) != 2 {
		t.Fatalf("%d requests", len(all))
	}
	told, waited := all[1].told(t), all[2].came.Sub(all[1].answered)
	if all[1].status != 429 || told < 5*time.Second-all[1].answered.Sub(all[0].came) || told > 6*time.Second || waited < told-time.Millisecond {
		t.Errorf("%d, told to wait %s, waited %s", all[1].status, told, waited)
	}
}

// sdkOpen: at an open service the key is the service's own, which gets it, and whoever
// calls has his own limit, by the minute, which his SDK waits for.
func sdkOpen(t *testing.T, s sdk) {
	w := s.worldOf(t, 300)
	w.waitsMillis(t, s.start(t, w.url+s.dialect+"-open", "sk-one"))
	w = s.worldOf(t, 12)
	one, another := s.start(t, w.url+s.dialect+"-open", "sk-one"), s.start(t, w.url+s.dialect+"-open", "sk-another")
	for _, u := range []*user{one, another} {
		if got := u.ask(asked{Model: "hello", Stream: true}); got.Error != nil || got.Text != "Hello!" {
			t.Fatalf("%+v", got)
		}
	}
	for i, h := range w.stub.take() {
		key := []string{"sk-one", "sk-another"}[i]
		if got := strings.TrimPrefix(h.Get("Authorization"), "Bearer ") + h.Get("X-Api-Key"); got != key {
			t.Errorf("the service got the key %q, want %q", got, key)
		}
	}
	if all := w.door.take(); len(all) != 2 {
		t.Errorf("%d requests of two callers", len(all))
	}
	w.waitsSeconds(t, s.start(t, w.url+s.dialect+"-open", "sk-third"))
}

// sdkDoesNotWait: over a minute nobody comes back, and the SDK's own error for a rate limit
// is there at once.
func sdkDoesNotWait(t *testing.T, s sdk) {
	w := s.world(t)
	u := s.start(t, w.url+s.dialect, w.keys["minutes"])
	if got := u.ask(asked{Model: "hello"}); got.Error != nil {
		t.Fatalf("%+v", *got.Error)
	}
	w.door.take()
	for _, stream := range []bool{false, true} {
		got := u.ask(asked{Model: "hello", Stream: stream})
		x := w.one(t, "over a minute")
		s.failed(t, "over a minute", got, 429, "rate_limit_error", "rate_limit_exceeded", x)
		if told := x.told(t); told < 90*time.Second || told > 144*time.Second || !strings.Contains(got.Error.Message, "the key limit is a burst of 1 call") {
			t.Errorf("told to wait %s: %s", told, got.Error.Message)
		}
	}
	if n := len(w.stub.take()); n != 1 {
		t.Errorf("the service got %d requests", n)
	}
}

// sdkTriesAgain: where nothing was done the SDK tries again by itself, as often as it does:
// a service that cannot be dialled, and a gateway that could not write a receipt of the call.
func sdkTriesAgain(t *testing.T, s sdk) {
	w := s.world(t)
	got := s.start(t, w.url+s.dialect+"-gone", w.keys["k"]).ask(asked{Model: "hello"})
	all := w.door.take()
	if len(all) != 3 {
		t.Fatalf("a service that is gone: %d requests", len(all))
	}
	s.failed(t, "a service that is gone", got, 502, "api_error", "upstream_unreachable", all[2])

	w.failing(receipts.ErrUnavailable)
	u := s.start(t, w.url+s.dialect, w.keys["k"])
	u.begin(asked{Model: "hello"})
	eventually(t, "it was refused", func() bool { return w.door.last().status != 0 })
	w.failing(nil)
	if got := u.end(); got.Error != nil || got.Text != "Hello!" {
		t.Errorf("once receipts can be written: %+v", got)
	}
	all = w.door.take()
	if len(all) != 2 || len(w.stub.take()) != 1 {
		t.Fatalf("once receipts can be written: %d requests", len(all))
	}
	if told, waited := all[0].told(t), all[1].came.Sub(all[0].answered); all[0].status != 503 || told < 5*time.Second || waited < told-time.Millisecond {
		t.Errorf("%d, told to wait %s, waited %s", all[0].status, told, waited)
	}
}

func (w *served) failing(err error) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.fail = err
}

// sdkDoesNotTryAgain: where the service may have acted the SDK, which tries whatever is a
// 5xx again, is told not to: there is one request, at the gateway and at the service.
func sdkDoesNotTryAgain(t *testing.T, s sdk) {
	w := s.world(t)
	w.stub.before = func() { w.failing(receipts.ErrUnavailable) }
	for _, c := range []struct {
		model, service string
		status         int
		kind, code     string
	}{
		{"dies", "", 502, "api_error", "upstream_unreachable"},
		{"silent", "-quick", 504, "timeout_error", "upstream_timeout"},
		{"unrecorded", "", 503, "overloaded_error", "receipt_unavailable"},
	} {
		got := s.start(t, w.url+s.dialect+c.service, w.keys["k"]).ask(asked{Model: c.model})
		x := w.one(t, c.model)
		s.failed(t, c.model, got, c.status, c.kind, c.code, x)
		if n := len(w.stub.take()); n != 1 || x.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: the service got %d requests; %v", c.model, n, x.header)
		}
	}
}

// sdkService: what the service itself says of a rate limit is obeyed as it is.
func sdkService(t *testing.T, s sdk) {
	w := s.world(t)
	if got := s.start(t, w.url+s.dialect, w.keys["k"]).ask(asked{Model: "busy"}); got.Error != nil || got.Text != "Hello!" {
		t.Errorf("%+v", got)
	}
	all := w.door.take()
	if len(all) != 2 || len(w.stub.take()) != 2 || all[0].status != 429 || all[0].header.Get("Agentgate-Code") != "" || all[0].told(t) != 50*time.Millisecond {
		t.Errorf("%+v", all)
	}
}

// sdkCut: a stream that did not come to its end is an error, whoever cut it and wherever,
// and is not made again by itself. Between two events it says why.
func sdkCut(t *testing.T, s sdk) {
	w := s.world(t)
	for _, c := range []struct {
		model, key, why string
	}{
		{"breaks", "k", s.dialect + " broke off in its answer"},
		{"breaks within", "k", ""},
		{"holds", "blocked", "the operator has blocked this tenant"},
	} {
		u := s.start(t, w.url+s.dialect, w.keys[c.key])
		u.begin(asked{Model: c.model, Stream: true})
		if c.model == "holds" {
			eventually(t, "the stream is under way", func() bool { return w.stub.holds.Load() && w.door.last().status == 200 })
			w.gateway.Block("tenant:wide")
		}
		got := u.end()
		if got.Error == nil || !strings.HasPrefix("Hello!", got.Text) || got.Text == "Hello!" || !strings.Contains(got.Error.Says+got.Error.Message, c.why) {
			t.Errorf("%s: %+v %+v; want an error that says %q", c.model, got, got.Error, c.why)
		}
		if x, n := w.one(t, c.model), len(w.stub.take()); n != 1 || x.status != 200 {
			t.Errorf("%s: %d, and the service got %d requests", c.model, x.status, n)
		}
	}
}

// sdkHalf: an answer that is no stream and broke off is an error too. Anthropic's SDK for
// Go makes such a call again, as it does without a gateway; each is a call of its own, with
// its own receipt.
func sdkHalf(t *testing.T, s sdk) {
	w := s.world(t)
	times := 1
	if s.name == "anthropic-sdk-go" {
		times = 3
	}
	got := s.start(t, w.url+s.dialect, w.keys["k"]).ask(asked{Model: "half"})
	if got.Error == nil || got.Error.Status != 0 || got.Text != "" {
		t.Errorf("%+v", got)
	}
	if came, requests := w.door.take(), w.stub.take(); len(came) != times || len(requests) != times || len(w.ledger.all()) != 2*times {
		t.Errorf("%d calls, %d requests, %d records; want %d calls", len(came), len(requests), len(w.ledger.all()), times)
	}
}
