package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// BenchmarkControls is what the gateway does for an admitted call besides
// relaying and recording it: find the key, charge its bucket, scope, tenant and
// service buckets and a slot, tell the caller, open the credential, give the
// slot back. It should cost the same however many keys there are.
func BenchmarkControls(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			g, tokens := controlled(b, n, "https://tools.example", nil, nil)
			at := &attempt{g: g}
			body := act{Service: "tools", Action: "get"}
			service := g.current.Load().registry.Services["tools"]
			address := netip.MustParseAddr("203.0.113.7")
			in := httptest.NewRequest(http.MethodPost, "/v1/act", nil)
			authorization := []string{""}
			in.Header["Authorization"] = authorization
			header := http.Header{}
			controls := func(token string) {
				clear(header)
				authorization[0] = token
				call := Call{In: in, Address: address, view: g.current.Load()}
				out := answer{ResponseWriter: headerOnly{header}}
				err := g.identify(&call, at)
				charge, refused := g.chargeKey(&call, &out)
				call.Act = body
				_, action, denied := authorize(call.view.registry, call.Key, call.Act)
				ticket, full := g.admit(&call, service, action, charge, &out, at)
				_, missing := openCredential(g.vault, &call, service)
				ticket.Release()
				for _, e := range []*Error{err, refused, denied, full, missing} {
					if e != nil {
						b.Fatal(e)
					}
				}
			}
			for _, token := range tokens { // the limiter has met them all
				controls(token)
			}
			runtime.GC() // of what was made above
			b.ReportAllocs()
			b.ResetTimer()
			from := processor(b)
			for i := range b.N {
				// Not key after key: the caches must not foresee the next.
				controls(tokens[int((uint64(i)*0x9E3779B97F4A7C15>>16)%uint64(n))])
			}
			b.ReportMetric(float64((processor(b)-from).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// processor is the processor time of this process, its garbage collector's
// included: other work on the machine lengthens the wall's time, and this hardly.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// headerOnly is an answer's header and nothing behind it.
type headerOnly struct{ header http.Header }

func (h headerOnly) Header() http.Header         { return h.header }
func (h headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (h headerOnly) WriteHeader(int)             {}

// controlled is a gateway of so many keys and no limit within reach, with the
// Authorization field of each of them.
func controlled(b *testing.B, n int, upstream string, log Receipts, limits *identity.Limits) (*Gateway, []string) {
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	const endless = 1e9
	db, err := store.Open(context.Background(), b.TempDir())
	must(err)
	b.Cleanup(func() { _ = db.Close() })
	kek, err := vault.ParseKEK(strings.Repeat("7", 64))
	must(err)
	credentials, err := vault.Load(context.Background(), db, kek)
	must(err)
	must(credentials.Set(context.Background(), vault.Ref{Service: "tools"}, vault.Form{Type: vault.TypeBearer},
		secret.New("the-credential-of-the-service"), time.Unix(1, 0)))
	clock := clockwork.NewRealClock()
	nanos := ratelimit.NewClock(clock)
	settings := &config.Settings{
		KeyMaxPrincipals: 64, RateAuthPerMinute: 60, MaxRequestBody: 10 << 20, ReceiptIntent: "always",
		StreamIdle: 5 * time.Minute, ClientStall: 30 * time.Second,
	}
	salts, err := vault.LoadSalts(context.Background(), db, kek, clock)
	must(err)
	g := New(Parts{
		Vault: credentials, Clock: clock, Nanos: nanos, Log: slog.New(slog.DiscardHandler),
		Limiter:  ratelimit.NewLocal(ratelimit.Options{Clock: nanos, TableSize: 4 * n}),
		Receipts: log, UserAgent: "agentgw/bench", Salts: salts,
		Decided: func(string, Code, string) {}, Answered: func(string, time.Duration) {}, Waited: func(string, time.Duration) {}, Unrecorded: func() {}, Observed: func(string) {},
	})
	must(err)
	snapshot, err := registry.Parse("registry.yaml", []byte("version: 1\nservices:\n  tools:\n    base_url: "+upstream+"\n"+
		"    allow_private: true\n    rate_limit: {rps: 1000000000, burst: 1000000000}\n    credential: {type: bearer}\n    actions:\n"+
		"      get: {method: GET, path: /get}\n      post: {method: POST, path: /post, params: {query: string}}\n"))
	must(err)
	effective, err := snapshot.Effective(registry.Defaults{
		KeyRPS: endless, KeyBurst: endless, TenantRPS: endless, TenantBurst: endless, TenantMaxInflight: 32,
		Source: func(string) string { return "test" },
	})
	must(err)
	keys, tokens := make([]*identity.Key, n), make([]string, n)
	for i := range n {
		text, digest := identity.NewKey()
		keys[i] = &identity.Key{ID: fmt.Sprintf("key-%d", i), Digest: digest, Services: []string{"tools"}, Users: []string{"*"}, Limits: limits}
		tokens[i] = "Bearer " + text.Reveal()
	}
	directory, err := identity.NewDirectory(keys)
	must(err)
	must(g.Use(settings, snapshot, effective, nil, directory))
	return g, tokens
}
