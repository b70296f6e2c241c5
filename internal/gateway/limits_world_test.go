package gateway_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// What the tests of limits share: a registry made of lines, an upstream whose
// streams end when told to, and a reader of the fields that answers carry.

// serviceLine is a service of the usual two actions with those attributes, each
// followed by a comma, as a line under services: in a registry.
func serviceLine(name, attributes string) string {
	return "  " + name + `: {base_url: "%[1]s", allow_private: true, ` + attributes +
		` actions: {get: {method: GET, path: "/get/{id}", params: {id: string}}, stream: {method: GET, path: /stream}}}` + "\n"
}

// plainCall is the body of a plain call.
func plainCall(service, principal string) string {
	return actBody(service, "get", principal, `,"params":{"id":"1"}`)
}

func streamCall(service, principal string) string { return actBody(service, "stream", principal, "") }

func actBody(service, action, principal, rest string) string {
	if principal != "" {
		rest += `,"on_behalf_of":` + strconv.Quote(principal)
	}
	return `{"service":"` + service + `","action":"` + action + `"` + rest + `}`
}

// heldStreams is an upstream whose streams stay open until each is told to end.
type heldStreams struct{ ends sync.Map } // a channel by Idempotency-Key

func newHeldStreams() *heldStreams { return new(heldStreams) }

func (s *heldStreams) serve(rw http.ResponseWriter, r *http.Request) {
	end, held := s.ends.Load(r.Header.Get("Idempotency-Key"))
	if !held {
		hello(rw, r)
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(rw).Flush()
	select {
	case <-end.(chan struct{}):
	case <-r.Context().Done():
	}
}

// hold opens a stream, which then holds its slot, and returns what ends it.
func (w *world) hold(s *heldStreams, key, body string) (finish func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	id, end := rand.Text(), make(chan struct{})
	s.ends.Store(id, end)
	r := w.request(ctx, key, body)
	r.Header.Set("Idempotency-Key", id)
	res, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if res.StatusCode != 200 {
		w.t.Fatalf("the stream was refused: %s %s", res.Status, res.Header.Get("Agentgate-Code"))
	}
	return func() {
		w.t.Helper()
		close(end)
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			w.t.Error(err)
		}
		_ = res.Body.Close()
	}
}

// want holds an answer against a status, code and limit.
func (got told) want(t *testing.T, what string, status int, code, limit string) {
	t.Helper()
	if got.status != status || got.code != code || got.limit != limit {
		t.Fatalf("%s: got %d %s (limit %q), want %d %s (limit %q): %s", what, got.status, got.code, got.limit, status, code, limit, got.body)
	}
}

// violated is what a refusal says of the policies that refused.
func (got told) violated() (list []string) {
	var p struct {
		Violated []string `json:"violated-policies"`
	}
	_ = json.Unmarshal([]byte(got.body), &p)
	return p.Violated
}

// retryAfter is the Retry-After of an answer, which must be a whole number.
func (got told) retryAfter(t *testing.T) time.Duration {
	t.Helper()
	text := got.header.Get("Retry-After")
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		t.Fatalf("Retry-After: %q is not a whole number of seconds, at least 1", text)
	}
	return time.Duration(n) * time.Second
}

// gauge is one policy as the RateLimit fields tell of it.
type gauge struct {
	quota, window, left, next int64 // 0 where not told, left -1
	unit                      string
}

// fields reads RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers)
// with a parser of structured fields (RFC 9651) that is not the gateway's, and
// holds them against what is always so.
func (got told) fields(t *testing.T) map[string]gauge {
	t.Helper()
	policies, err := httpsfv.UnmarshalList(got.header.Values("RateLimit-Policy"))
	if err != nil && len(got.header.Values("RateLimit-Policy")) > 0 {
		t.Fatalf("RateLimit-Policy %q: %v", got.header.Values("RateLimit-Policy"), err)
	}
	state, err := httpsfv.UnmarshalList(got.header.Values("RateLimit"))
	if err != nil && len(got.header.Values("RateLimit")) > 0 {
		t.Fatalf("RateLimit %q: %v", got.header.Values("RateLimit"), err)
	}
	if len(policies) != len(state) {
		t.Fatalf("%d policies and %d levels", len(policies), len(state))
	}
	whole := func(i httpsfv.Item, name string) int64 {
		v, told := i.Params.Get(name)
		n, whole := v.(int64)
		if told && !whole {
			t.Fatalf("%v: %s is %v", i.Value, name, v)
		}
		if !told {
			return -1
		}
		return n
	}
	all := map[string]gauge{}
	for i := range policies {
		p, s := policies[i].(httpsfv.Item), state[i].(httpsfv.Item)
		name, isString := p.Value.(string)
		if _, twice := all[name]; twice || !isString || s.Value != p.Value {
			t.Fatalf("policy %v, level of %v, before %v", p.Value, s.Value, all)
		}
		g := gauge{quota: whole(p, "q"), window: whole(p, "w"), left: whole(s, "r"), next: whole(s, "t")}
		if unit, told := p.Params.Get("qu"); told {
			g.unit = unit.(string)
		}
		if g.quota < 1 || g.left < 0 || g.left > g.quota {
			t.Fatalf("%s: %d left of %d", name, g.left, g.quota)
		}
		if slots := g.unit == "concurrent-requests"; slots != (g.window == -1) || slots && g.next != -1 || g.unit != "" && !slots {
			t.Fatalf("%s: %+v: a bucket has a window and slots have none, nor a time", name, g)
		}
		if full := g.left == g.quota; g.next == 0 || g.next > g.window || full && g.next != -1 {
			t.Fatalf("%s: %+v", name, g)
		}
		all[name] = g
	}
	return all
}

// left is how much is left of each policy that an answer tells of.
func (got told) left(t *testing.T) map[string]int64 {
	t.Helper()
	left := map[string]int64{}
	for name, g := range got.fields(t) {
		left[name] = g.left
	}
	return left
}

// tokens peeks at a bucket.
func (w *world) tokens(kind ratelimit.Kind, partition string, rps float64, burst int64) int64 {
	w.t.Helper()
	limit, err := ratelimit.NewLimit(rps, burst)
	if err != nil {
		w.t.Fatal(err)
	}
	bucket, _ := w.limiter.Peek(ratelimit.NewRef(ratelimit.Registered, kind, partition, limit), w.nanos.Nanos())
	return bucket.Remaining
}

// entries are the partitions of a kind that the limiter keeps for the registered.
func (w *world) entries(kind ratelimit.Kind) map[string]ratelimit.Entry {
	all := map[string]ratelimit.Entry{}
	w.limiter.Each(ratelimit.Registered, kind, w.nanos.Nanos(), func(e ratelimit.Entry) bool {
		all[e.Partition] = e
		return true
	})
	return all
}

func (w *world) table() ratelimit.TableStats { return w.limiter.Stats().Tables[ratelimit.Registered] }

// roomy is a key for everything whose own limit no test reaches.
func roomy(id string) *identity.Key {
	return &identity.Key{ID: id, Services: []string{"*"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 1000, Burst: 100_000}}
}

// of puts a key into a named tenant.
func of(tenant string, k *identity.Key) *identity.Key {
	k.Tenant = tenant
	return k
}
