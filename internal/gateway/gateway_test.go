package gateway_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/gateway"
	"agentgw/internal/hangup"
	"agentgw/internal/identity"
	"agentgw/internal/oidc"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
	"agentgw/internal/tunnel"
	"agentgw/internal/vault"
)

// ledger keeps records in memory, in the order in which they came.
type ledger struct {
	mu      sync.Mutex
	records []receipts.Record
	fail    error
	panicAt receipts.Kind
	missed  map[bool]int           // by whether they were refused
	passed  map[bool]int           // by whether a record was taken, too late
	once    bool                   // panics at the next outcome, whatever it says
	at      func(*receipts.Record) // called with each record before it is kept; nil: nothing is
	trees   map[string]uint64
}

func (l *ledger) Append(r *receipts.Record) (receipts.Entry, error) {
	if l.at != nil {
		l.at(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.panicAt == r.Kind && r.Ending == receipts.Complete {
		panic("a fault of ours")
	}
	if l.once && r.Kind == receipts.KindOutcome {
		l.once = false
		panic("a fault of ours")
	}
	if l.fail != nil && !errors.Is(l.fail, receipts.ErrLate) {
		return receipts.Entry{}, l.fail
	}
	l.records = append(l.records, *r)
	if l.fail != nil {
		return receipts.Entry{}, l.fail
	}
	if l.trees == nil {
		l.trees = map[string]uint64{}
	}
	l.trees[r.Tenant]++
	return entry(r, len(l.records)-1, l.trees[r.Tenant]-1), nil
}

func (l *ledger) Promise(*receipts.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fail
}

func (l *ledger) Pass(_ *receipts.Record, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.passed == nil {
		l.passed = map[bool]int{}
	}
	l.passed[late]++
}

func (l *ledger) Miss(_ *receipts.Record, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed == nil {
		l.missed = map[bool]int{}
	}
	l.missed[refused]++
}

// Refuse counts nothing: every refusal has its record.
func (l *ledger) Refuse(r *receipts.Record, _ string) (receipts.Entry, error) { return l.Append(r) }

// entryOf is where a ledger's record stands: for one with a tenant, in a tree
// named for it, behind those of the same tenant.
func entryOf(records []receipts.Record, i int) receipts.Entry {
	before := uint64(0)
	for j := range records[:i] {
		if records[j].Tenant == records[i].Tenant {
			before++
		}
	}
	return entry(&records[i], i, before)
}

func entry(r *receipts.Record, i int, before uint64) receipts.Entry {
	e := receipts.Entry{Index: 1000 + uint64(i), Leaf: sha256.Sum256(fmt.Appendf(nil, "%s %s", r.ID, r.Kind))}
	if r.Tenant != "" {
		e.Tree, e.TreeIndex = "log/t/"+r.Tenant, before
	}
	return e
}

func (l *ledger) Find(string, string) ([]json.RawMessage, error) { return nil, nil }

func (l *ledger) Prove([]json.RawMessage) ([]receipts.Proof, error) { return nil, nil }

func (l *ledger) Checkpoint() []byte  { return nil }
func (l *ledger) VerifierKey() string { return "" }

func (l *ledger) all() []receipts.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]receipts.Record(nil), l.records...)
}

// empty is a vault that holds nothing, and panics for one name.
type empty struct{}

func (empty) Open(_ context.Context, r vault.Ref, f vault.Form) (vault.Credential, error) {
	if r.User == "panic" {
		panic("a fault of ours")
	}
	if f.Type == "" || f.Type == "none" {
		return vault.Credential{}, nil
	}
	return vault.Credential{}, fmt.Errorf("%s: %w", r, vault.ErrMissing)
}

// pseudonyms are those that worlds have.
var pseudonyms = identity.NewPseudonyms([32]byte{1})

// salts are of a tenant and a receipt, as those of vault.Salts are.
type salts struct{ fail error }

func (s *salts) Salt(tenant, receipt string) (salt [receipts.SaltSize]byte, key string, err error) {
	return sha256.Sum256([]byte(tenant + " " + receipt)), "key of " + tenant, s.fail
}

// world is a gateway with a real upstream behind it and a fake clock in it.
type world struct {
	t        testing.TB
	clock    *clockwork.FakeClock
	ledger   *ledger
	limiter  *ratelimit.Local
	nanos    ratelimit.Clock
	gateway  *gateway.Gateway
	server   *httptest.Server
	upstream *httptest.Server
	keys     map[string]string // by id
	settings *config.Settings
	logged   logged
	salts    salts
	lost     atomic.Int64 // records that could not be written
	mu       sync.Mutex
	seen     int            // requests at the upstream
	decided  map[string]int // calls by code and limit, as metrics count them
	waits    atomic.Int64   // for a slot, in nanoseconds, as metrics sum them
}

func (w *world) waitedFor() time.Duration { return time.Duration(w.waits.Load()) }

// logged is what the gateway and its server have logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const worldRegistry = `
version: 1
tenants:
  small: {rps: 1, burst: 2, max_inflight: 1}
  wide: {rps: 100000, burst: 100000, max_inflight: 100000}
services:
  tools:
    base_url: %[1]s
    allow_private: true
    actions:
      get: {method: GET, path: "/get/{id}", params: {id: string}}
      stream: {method: GET, path: /stream}
      head: {method: HEAD, path: /head}
      post: {method: POST, path: /post, params: {text: string}}
  slow:
    base_url: %[1]s
    allow_private: true
    rate_limit: {rps: 0.1, burst: 1}
    actions:
      get: {method: GET, path: "/get/{id}", params: {id: string}}
  signed:
    base_url: %[1]s
    allow_private: true
    delegation: required
    credential: {type: bearer}
    actions:
      get: {method: GET, path: "/get/{id}", params: {id: string}}
  keyed:
    base_url: %[1]s
    allow_private: true
    credential: {type: bearer}
    actions:
      get: {method: GET, path: "/get/{id}", params: {id: string}}
  guarded:
    base_url: %[1]s
    actions:
      get: {method: GET, path: "/get/{id}", params: {id: string}}
`

// setup is how a world differs from the usual one. The zero setup does not.
type setup struct {
	registry string                   // the upstream's URL stands in it as %[1]s; "" is worldRegistry
	settings func(*config.Settings)   // changes the usual settings
	limiter  func(*ratelimit.Options) // changes the usual limiter
	vault    gateway.Vault            // nil is an empty one
	level    slog.Level               // from which on is logged
	// clock, if set, makes the clock that the gateway has of the world's own.
	clock func(*clockwork.FakeClock) clockwork.Clock
}

func newWorld(t *testing.T, upstream http.HandlerFunc, keys ...*identity.Key) *world {
	t.Helper()
	return setup{}.world(t, upstream, keys...)
}

func (s setup) world(t testing.TB, upstream http.HandlerFunc, keys ...*identity.Key) *world {
	t.Helper()
	w := &world{
		t: t, clock: clockwork.NewFakeClockAt(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		ledger: &ledger{}, keys: map[string]string{}, decided: map[string]int{},
		settings: &config.Settings{
			RateKeyRPS: 20, RateKeyBurst: 40, RateTenantRPS: 100, RateTenantBurst: 200, TenantMaxInflight: 32,
			KeyMaxPrincipals: 64, RateTableSize: 100000, RateAuthPerMinute: 60, MaxRequestBody: 1 << 20, ReceiptIntent: "always",
			ReceiptOnFailure: "refuse", StreamIdle: 5 * time.Minute, ClientStall: 30 * time.Second,
		},
	}
	if s.settings != nil {
		s.settings(w.settings)
	}
	w.upstream = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen++
		w.mu.Unlock()
		upstream(rw, r)
	}))
	t.Cleanup(w.upstream.Close)
	for _, k := range keys {
		text, digest := identity.NewKey()
		k.Digest = digest
		w.keys[k.ID] = text.Reveal()
	}
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		t.Fatal(err)
	}
	file := cmp.Or(s.registry, worldRegistry)
	snapshot, err := registry.Parse("registry.yaml", []byte(strings.ReplaceAll(file, "%[1]s", w.upstream.URL)))
	if err != nil {
		t.Fatal(err)
	}
	effective, err := snapshot.Effective(registry.Defaults{
		KeyRPS: w.settings.RateKeyRPS, KeyBurst: w.settings.RateKeyBurst,
		TenantRPS: w.settings.RateTenantRPS, TenantBurst: w.settings.RateTenantBurst,
		TenantMaxInflight: w.settings.TenantMaxInflight, Source: func(string) string { return "test" },
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.vault == nil {
		s.vault = empty{}
	}
	w.nanos = ratelimit.NewClock(w.clock)
	options := ratelimit.Options{Clock: w.nanos, Epoch: w.clock.Now().UnixNano()}
	if s.limiter != nil {
		s.limiter(&options)
		w.nanos = options.Clock
	}
	w.limiter = ratelimit.NewLocal(options)
	clock := clockwork.Clock(w.clock)
	if s.clock != nil {
		clock = s.clock(w.clock)
	}
	w.gateway = gateway.New(gateway.Parts{
		Limiter: w.limiter, Nanos: w.nanos, Receipts: w.ledger, Vault: s.vault, Clock: clock,
		Log: slog.New(slog.NewTextHandler(&w.logged, &slog.HandlerOptions{Level: s.level})), Replica: "r", UserAgent: "agentgw/test", Salts: &w.salts,
		Budgets:    tunnel.NewBudgets(w.settings.RateTableSize, nil),
		Pseudonyms: pseudonyms,
		Tokens:     oidc.NewIssuers(gateway.NewTransport, w.clock, slog.New(slog.NewTextHandler(&w.logged, nil))),
		Decided:    w.count, Answered: func(string, time.Duration) {}, Unrecorded: func() { w.lost.Add(1) },
		Waited: func(end string, after time.Duration) {
			w.count("", "waited", end)
			w.waits.Add(int64(after))
		},
		Observed: func(rule string) { w.count("", "observed", rule) },
	})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.gateway.Use(w.settings, snapshot, effective, set, directory); err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewUnstartedServer(w.gateway.Handler())
	w.server.Listener = hangup.Listener(w.server.Listener)
	w.server.Config.ReadHeaderTimeout = 10 * time.Second
	w.server.Start()
	t.Cleanup(w.server.Close)
	t.Cleanup(w.gateway.Close)
	return w
}

func (w *world) count(_ string, code gateway.Code, limit string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decided[string(code)+" "+limit]++
}

func (w *world) counted(code, limit string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.decided[code+" "+limit]
}

func (w *world) request(ctx context.Context, key, body string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, "POST", w.server.URL+"/v1/act", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+w.keys[key])
	}
	return r
}

type told struct {
	status int
	code   string
	limit  string
	header http.Header
	body   string
}

func (w *world) act(key, body string) told {
	w.t.Helper()
	return w.do(w.request(context.Background(), key, body))
}

func (w *world) do(r *http.Request) told {
	w.t.Helper()
	res, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var p struct{ Code, Limit string }
	_ = json.Unmarshal(body, &p)
	return told{res.StatusCode, res.Header.Get("Agentgate-Code"), p.Limit, res.Header, string(body)}
}

func (w *world) inFlight(tenant string) int64 {
	_, slots := w.limiter.Peek(ratelimit.NewTenant(ratelimit.Registered, tenant, ratelimit.Limit{}, 1000), 0)
	return 1000 - slots.Remaining
}

// pooled is how many slots of process and services are taken, by the count of each pool
// and by those of tenants, together: 0 only if all agree that there are none.
func (w *world) pooled() (n int64) {
	st := w.limiter.Stats()
	for _, p := range append(st.Services, st.Process) {
		n += max(p.InFlight, -p.InFlight) + p.OfTenants
	}
	return n
}

func (w *world) upstreamRequests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// eventually waits for an effect of something that happened elsewhere.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"hello":1}`) }

func everything(id string) *identity.Key {
	return &identity.Key{ID: id, Services: []string{"*"}, Users: []string{"*"}}
}

// TestOrder sends a call that is faulty at every step and takes the faults away
// one by one: each time the refusal is the next step's, and the upstream sees
// nothing until none is left.
func TestOrder(t *testing.T) {
	narrow := &identity.Key{ID: "narrow", Services: []string{"signed", "keyed", "guarded", "tools"}, Actions: []string{"*.get"}, Users: []string{"*"},
		Tenant: "small", Limits: &identity.Limits{RPS: 0.001, Burst: 3}}
	w := newWorld(t, hello, narrow)
	const bad = `{"service":"payroll","action":"get","params":{"id":".."}}`
	check := func(got told, status int, code, limit string) {
		t.Helper()
		if got.status != status || got.code != code || got.limit != limit {
			t.Errorf("got %d %s (limit %q), want %d %s (limit %q): %s", got.status, got.code, got.limit, status, code, limit, got.body)
		}
		if n := w.upstreamRequests(); n != 0 {
			t.Errorf("the upstream was called %d times", n)
		}
	}
	check(w.act("", "{"), 401, "unauthenticated", "")
	check(w.act("narrow", "{"), 400, "bad_request", "")  // 1 of 3 tokens
	check(w.act("narrow", bad), 403, "scope_denied", "") // 2 of 3
	signed := `{"service":"signed","action":"get","params":{"id":".."}}`
	check(w.act("narrow", signed), 403, "delegation_required", "") // 3 of 3, 1 of the tenant's 2
	check(w.act("narrow", "{"), 429, "rate_limited", "key")
	w.clock.Advance(3000 * time.Second)
	check(w.act("narrow", `{"service":"keyed","action":"get","params":{"id":".."}}`), 403, "credential_missing", "")
	check(w.act("narrow", `{"service":"guarded","action":"get","params":{"id":".."}}`), 400, "bad_params", "")
	check(w.act("narrow", signed), 429, "rate_limited", "tenant")
	w.clock.Advance(3000 * time.Second)
	check(w.act("narrow", `{"service":"guarded","action":"get","params":{"id":"1"}}`), 502, "upstream_unreachable", "")
	if got := w.act("narrow", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.status != 200 || got.body != `{"hello":1}` {
		t.Errorf("with no fault left: %d %s", got.status, got.body)
	}
	if n := w.inFlight("tenant:small"); n != 0 {
		t.Errorf("%d slots are still taken", n)
	}
	var kinds []string
	for _, r := range w.ledger.all() {
		if want := map[bool]string{true: "", false: "tenant:small"}[r.Code == "unauthenticated"]; r.Tenant != want {
			t.Errorf("a record of %s is the tenant's %q, want %q", r.Code, r.Tenant, want)
		}
		kinds = append(kinds, string(r.Kind)+":"+r.Code)
	}
	want := "refusal:unauthenticated refusal:bad_request refusal:scope_denied refusal:delegation_required refusal:rate_limited " +
		"refusal:credential_missing refusal:bad_params refusal:rate_limited intent: outcome:upstream_unreachable intent: outcome:"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("receipts:\n got %s\nwant %s", got, want)
	}
}

// TestStreamHoldsItsSlot: the cap counts a stream until its last byte, a
// refusal for want of a slot costs nothing, and the slot is free again when the
// client can see the end.
func TestStreamHoldsItsSlot(t *testing.T) {
	next := make(chan string)
	finish := sync.OnceFunc(func() { close(next) })
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			hello(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream; charset=UTF-8")
		_ = http.NewResponseController(rw).Flush() // the header, or the client would wait for an event
		for event := range next {
			_, _ = io.WriteString(rw, event)
			_ = http.NewResponseController(rw).Flush()
		}
	}, &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "small"})
	res, err := w.server.Client().Do(w.request(context.Background(), "k", `{"service":"tools","action":"stream"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	defer finish() // or a failed test would wait for the upstream
	buf := make([]byte, 100)
	for _, event := range []string{"data: 1\n\n", "data: 2\r\n\r\n"} {
		next <- event
		n, err := res.Body.Read(buf)
		if err != nil || string(buf[:n]) != event {
			t.Fatalf("read %q, %v; want %q at once", buf[:n], err, event)
		}
	}
	for range 5 { // burst 2, one spent: five refusals must not spend the other
		got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)
		if got.status != 429 || got.code != "concurrency_limited" || got.limit != "tenant" {
			t.Fatalf("while the stream runs: %d %s %s", got.status, got.code, got.body)
		}
		if want := `"tenant";r=1;t=1, "inflight";r=0, "key";r=39;t=1`; got.header.Get("RateLimit") != want {
			t.Fatalf("RateLimit: %s, want %s: the key's token is back", got.header.Get("RateLimit"), want)
		}
	}
	finish()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Fatalf("the end of the stream: %q, %v", rest, err)
	}
	if n := w.inFlight("tenant:small"); n != 0 {
		t.Errorf("the client sees the end and %d slots are taken", n)
	}
	last := w.ledger.all()
	if r := last[len(last)-1]; r.Kind != receipts.KindOutcome || r.Ending != receipts.Complete || r.Out != 20 {
		t.Errorf("the client sees the end and the last record is %s %s of %d bytes", r.Kind, r.Ending, r.Out)
	}
	if got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.status != 200 {
		t.Errorf("after the stream: %d %s", got.status, got.body)
	}
}

// TestStrangersCostTheTenantNothing: a key out of its scope may knock as often
// as its own limit lets it; the tenant's own key is never refused for it.
func TestStrangersCostTheTenantNothing(t *testing.T) {
	w := newWorld(t, hello,
		&identity.Key{ID: "stranger", Services: []string{"slow"}, Users: []string{"*"}, Tenant: "small", Limits: &identity.Limits{RPS: 1000, Burst: 2000}},
		&identity.Key{ID: "real", Services: []string{"tools"}, Users: []string{"*"}, Tenant: "small"})
	for range 1000 {
		if got := w.act("stranger", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.code != "scope_denied" {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	for range 2 {
		if got := w.act("real", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.status != 200 {
			t.Fatalf("the tenant's own key: %d %s", got.status, got.body)
		}
	}
	denied := 0
	for _, r := range w.ledger.all() {
		if r.Code == "scope_denied" {
			denied++
		}
	}
	if denied != 1000 {
		t.Errorf("%d receipts of scope_denied, want 1000", denied)
	}
}

// TestNoReceiptNoCall: what cannot be recorded is not done.
func TestNoReceiptNoCall(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	w.ledger.fail = receipts.ErrUnavailable
	got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)
	if got.status != 503 || got.code != "receipt_unavailable" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", got.status, got.body, got.header)
	}
	if named := got.header.Get("Agentgate-Receipt"); named != "" || strings.Contains(got.body, `"receipt"`) {
		t.Errorf("a receipt is named that is not there: %q, %s", named, got.body)
	}
	if n := w.upstreamRequests(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
	if n := w.inFlight("key:k"); n != 0 {
		t.Errorf("%d slots are still taken", n)
	}
	if n := w.ledger.missed[true]; n != 1 || len(w.ledger.missed) != 1 {
		t.Errorf("counted %v", w.ledger.missed)
	}
}

// TestNoRoomForTheOutcomeNoCall: where no intent is asked for, a call whose outcome
// could not be recorded is not made either.
func TestNoRoomForTheOutcomeNoCall(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.ReceiptIntent = "never" }}.world(t, hello, everything("k"))
	w.ledger.fail = receipts.ErrUnavailable
	got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)
	if got.status != 503 || got.code != "receipt_unavailable" || got.header.Get("X-Should-Retry") != "" || w.upstreamRequests() != 0 {
		t.Errorf("%d %s %v, %d calls", got.status, got.body, got.header, w.upstreamRequests())
	}
}

// TestLateReceipts: the log has taken a record and the disk does not answer. No
// answer names a receipt, the call is refused or let through as the operator says,
// nothing is counted as missing, and what the log has of an attempt is whole.
func TestLateReceipts(t *testing.T) {
	for _, allow := range []bool{false, true} {
		for _, from := range []receipts.Kind{receipts.KindIntent, receipts.KindOutcome, receipts.KindRefusal} {
			t.Run(fmt.Sprintf("allow=%v from the %s", allow, from), func(t *testing.T) {
				var w *world
				late := func() {
					w.ledger.mu.Lock()
					defer w.ledger.mu.Unlock()
					w.ledger.fail = receipts.ErrLate
				}
				w = setup{settings: func(s *config.Settings) {
					if allow {
						s.ReceiptOnFailure = "allow"
					}
				}}.world(t, func(rw http.ResponseWriter, r *http.Request) {
					if from == receipts.KindOutcome {
						late()
					}
					hello(rw, r)
				}, everything("k"))
				call, status, kinds := `{"service":"tools","action":"get","params":{"id":"1"}}`, 503, []receipts.Kind{receipts.KindIntent, receipts.KindOutcome}
				if allow {
					status = 200
				}
				if from != receipts.KindOutcome {
					late()
				}
				if from == receipts.KindRefusal {
					call, kinds = `{"service":"nowhere","action":"get"}`, []receipts.Kind{receipts.KindRefusal}
					if allow {
						status = 404
					}
				}
				got := w.act("k", call)
				named := got.header.Get("Agentgate-Receipt") != ""
				if got.status != status || named != (from == receipts.KindOutcome) {
					t.Errorf("%d %s %v", got.status, got.body, got.header)
				}
				ran := map[bool]int{true: 1}[from != receipts.KindRefusal && (allow || from == receipts.KindOutcome)]
				if w.upstreamRequests() != ran {
					t.Errorf("%d calls of the upstream, want %d", w.upstreamRequests(), ran)
				}
				if again := got.header.Get("X-Should-Retry"); (again == "false") != (!allow && ran == 1) {
					t.Errorf("x-should-retry: %q", again)
				}
				if got, want := w.ledger.passed[true], map[bool]int{true: 1}[allow && from != receipts.KindOutcome]; got != want || len(w.ledger.passed) > 1 {
					t.Errorf("noted as let through: %v, want %d", w.ledger.passed, want)
				}
				if len(w.ledger.missed) != 0 {
					t.Errorf("counted as missing: %v", w.ledger.missed)
				}
				var written []receipts.Kind
				for _, r := range w.ledger.all() {
					written = append(written, r.Kind)
				}
				if !slices.Equal(written, kinds) {
					t.Errorf("the log has %v, want %v", written, kinds)
				}
				// The outcome is of a refusal that went out whole, and without the service,
				// if it has a code; else of an answer of the service's.
				last := w.ledger.all()[len(kinds)-1]
				code, answered := "", 200
				if from == receipts.KindIntent && !allow {
					code, answered = "receipt_unavailable", 503
				}
				if from != receipts.KindRefusal && (last.Code != code || last.Status != answered || last.Ending != receipts.Complete) {
					t.Errorf("how it ended: %+v", last)
				}
			})
		}
	}
}

// TestLetThroughWithoutAReceipt: where the operator says so, what cannot be
// recorded is done and counted, and no receipt is named that is not there.
func TestLetThroughWithoutAReceipt(t *testing.T) {
	var w *world
	w = setup{settings: func(s *config.Settings) { s.ReceiptOnFailure = "allow" }}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		w.ledger.mu.Lock()
		defer w.ledger.mu.Unlock()
		if w.ledger.passed[false] != 1 {
			t.Errorf("the service is called, and noted is %v", w.ledger.passed)
		}
		hello(rw, r)
	}, everything("k"))
	w.ledger.fail = receipts.ErrUnavailable
	for _, c := range []struct {
		service string
		status  int
		lost    int64 // attempts, in all
	}{{"tools", 200, 1}, {"nowhere", 404, 2}} {
		got := w.act("k", `{"service":"`+c.service+`","action":"get","params":{"id":"1"}}`)
		if got.status != c.status || got.header.Get("Agentgate-Receipt") != "" || strings.Contains(got.body, `"receipt"`) || w.lost.Load() != c.lost {
			t.Errorf("%s: %d %s %v, %d lost", c.service, got.status, got.body, got.header, w.lost.Load())
		}
	}
	if n := w.ledger.missed[false]; n != 2 || len(w.ledger.missed) != 1 {
		t.Errorf("counted %v, want each attempt once", w.ledger.missed)
	}
}

// TestWaitIsTrue: told a wait, the caller who waits just that long is admitted.
func TestWaitIsTrue(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	call := `{"service":"slow","action":"get","params":{"id":"1"}}`
	if got := w.act("k", call); got.status != 200 {
		t.Fatalf("the first: %d %s", got.status, got.body)
	}
	for range 5 {
		got := w.act("k", call)
		var after int
		if _, err := fmt.Sscan(got.header.Get("Retry-After"), &after); err != nil || got.limit != "service" || after < 10 || after > 13 {
			t.Fatalf("%d %s: Retry-After %q (want 10 to 13)", got.status, got.body, got.header.Get("Retry-After"))
		}
		w.clock.Advance(time.Duration(after) * time.Second)
		if got := w.act("k", call); got.status != 200 {
			t.Fatalf("after waiting as told: %d %s", got.status, got.body)
		}
	}
}

// TestRateLimitFields: an answer tells of each limit that its call reached, and
// a refusal by scope tells nothing of a tenant.
func TestRateLimitFields(t *testing.T) {
	w := newWorld(t, hello, everything("k"), &identity.Key{ID: "narrow", Services: []string{"slow"}, Users: []string{"*"}})
	call := `{"service":"tools","action":"get","params":{"id":"1"}}`
	for key, want := range map[string][2]string{
		"k": {`"key";q=40;w=2, "tenant";q=200;w=2, "inflight";q=32;qu="concurrent-requests"`,
			`"key";r=39;t=1, "tenant";r=199;t=1, "inflight";r=31`},
		"narrow": {`"key";q=40;w=2`, `"key";r=39;t=1`},
	} {
		h := w.act(key, call).header
		if got := [2]string{h.Get("RateLimit-Policy"), h.Get("RateLimit")}; got != want {
			t.Errorf("%s:\n got %q\nwant %q", key, got, want)
		}
	}
}

// TestPanic: a fault of the gateway's own frees the slot and has its record,
// whether the upstream was called or not, and never looks like an answer.
func TestPanic(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	for range 50 {
		got := w.act("k", `{"service":"tools","action":"get","on_behalf_of":"panic","params":{"id":"1"}}`)
		if got.status != 500 || got.code != "internal" || strings.Contains(got.body, "fault of ours") {
			t.Fatalf("%d %s", got.status, got.body)
		}
		w.clock.Advance(time.Second)
	}
	w.ledger.panicAt = receipts.KindOutcome
	res, err := w.server.Client().Do(w.request(context.Background(), "k", `{"service":"tools","action":"get","params":{"id":"1"}}`))
	if err == nil {
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	if err == nil && res.StatusCode != 500 {
		t.Error("the answer of a call whose outcome was not recorded looks whole")
	}
	if n := w.inFlight("key:k"); n != 0 {
		t.Errorf("%d slots are still taken", n)
	}
	records := w.ledger.all()
	if len(records) != 52 || records[50].Kind != receipts.KindIntent || records[51].Kind != receipts.KindOutcome || records[51].Ending != receipts.Panic {
		t.Fatalf("%d records, the last %+v", len(records), records[len(records)-1])
	}
	for _, r := range records[:50] {
		if r.Kind != receipts.KindRefusal || r.Code != "internal" || r.Ending != receipts.Panic {
			t.Fatalf("the record of a panic: %s %s %s", r.Kind, r.Code, r.Ending)
		}
	}
}

// TestPanicWhileClosing: an outcome whose writing panics is written again, and
// still says how the call ended.
func TestPanicWhileClosing(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		send(rw, "half")
		panic(http.ErrAbortHandler)
	}, everything("k"))
	w.ledger.once = true
	res, err := w.server.Client().Do(w.request(context.Background(), "k", `{"service":"tools","action":"stream"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the cut answer looks whole")
	}
	eventually(t, "no slot is taken", func() bool { return w.inFlight("key:k") == 0 })
	eventually(t, "the outcome is there", func() bool { return len(w.ledger.all()) == 2 })
	if r := w.ledger.all()[1]; r.Kind != receipts.KindOutcome || r.Ending != receipts.UpstreamAborted || r.Out != 4 {
		t.Errorf("the outcome: %s, %q, %d bytes", r.Kind, r.Ending, r.Out)
	}
}

// TestOutcomeLost: the upstream ran and the outcome cannot be recorded. The
// agent gets no answer, is told not to try again, and sees nothing of the
// upstream's headers.
func TestOutcomeLost(t *testing.T) {
	var w *world
	w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		w.ledger.mu.Lock()
		w.ledger.fail = receipts.ErrUnavailable // after the intent
		w.ledger.mu.Unlock()
		rw.Header().Set("X-Upstream", "secret plans")
		if r.URL.Path == "/get/none" {
			rw.WriteHeader(http.StatusNoContent)
			return
		}
		hello(rw, r)
	}, everything("k"))
	for _, id := range []string{"1", "none"} {
		w.ledger.mu.Lock()
		w.ledger.fail = nil
		w.ledger.mu.Unlock()
		got := w.act("k", `{"service":"tools","action":"get","params":{"id":"`+id+`"}}`)
		if got.status != 503 || got.code != "receipt_unavailable" || got.header.Get("X-Should-Retry") != "false" || got.header.Get("X-Upstream") != "" {
			t.Errorf("%s: %d %s %v", id, got.status, got.body, got.header)
		}
		if n := w.inFlight("key:k"); n != 0 {
			t.Errorf("%s: %d slots are still taken", id, n)
		}
	}
}

// TestHeaderOnlyAnswers: an answer that ends with its header is relayed at once
// and its slot is free with it.
func TestHeaderOnlyAnswers(t *testing.T) {
	for _, status := range []int{204, 304, 200} {
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("X-Upstream", "1")
			rw.WriteHeader(status)
		}, everything("k"))
		got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)
		if got.status != status || got.body != "" || got.header.Get("X-Upstream") != "1" || w.inFlight("key:k") != 0 {
			t.Errorf("%d: got %d %q, %d in flight", status, got.status, got.body, w.inFlight("key:k"))
		}
	}
}
