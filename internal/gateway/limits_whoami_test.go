package gateway_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/config"
	"agentgw/internal/identity"
)

// TestWhoamiTellsWhatIsLeft of every limit that the key's calls meet, and of none
// that is off or somebody else's. Looking makes no entry and takes no token but
// the request's own.
func TestWhoamiTellsWhatIsLeft(t *testing.T) {
	up := newHeldStreams()
	file := "tenants:\n  t: {rps: 1, burst: 5, max_inflight: 2}\n  free: {rps: 0, max_inflight: 0}\nservices:\n" +
		serviceLine("tools", "") + serviceLine("slow", "rate_limit: {rps: 1, burst: 3},")
	scoped := &identity.Key{ID: "crew", Services: []string{"tools"}, Users: []string{"ann", "bob", "cid", "dan"}, Limits: &identity.Limits{RPS: 1, Burst: 9}}
	solo := &identity.Key{ID: "solo", Services: []string{"tools"}, Users: []string{"bob"}, Limits: &identity.Limits{RPS: 1, Burst: 9}}
	w := setup{registry: file, settings: func(s *config.Settings) { small(s); s.KeyMaxPrincipals = 2 }}.
		world(t, up.serve, of("t", limited("k", 1, 9)), of("free", limited("bare", 1, 9)), scoped, solo)
	limits := func(key string) string {
		t.Helper()
		r := w.request(context.Background(), key, "")
		r.Method, r.URL.Path, r.Body, r.ContentLength = "GET", "/v1/whoami", nil, 0
		got := w.do(r)
		var me struct{ Limits json.RawMessage }
		if err := json.Unmarshal([]byte(got.body), &me); err != nil || got.status != 200 {
			t.Fatalf("%v: %d %s", err, got.status, got.body)
		}
		return string(me.Limits)
	}
	want := func(what, got, want string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	want("before any call", limits("k"), `[{"limit":"key","burst":9,"remaining":8},{"limit":"tenant","burst":5,"remaining":5},`+
		`{"limit":"inflight","max_inflight":2,"remaining":2},{"limit":"service","service":"slow","burst":3,"remaining":3}]`)
	if n := w.table().Entries; n != 1 {
		t.Errorf("looking made %d entries, want the key's alone", n)
	}
	end := w.hold(up, "k", streamCall("tools", ""))
	w.act("k", plainCall("slow", "")).want(t, "a call", 200, "", "")
	after := `{"limit":"tenant","burst":5,"remaining":3},{"limit":"inflight","max_inflight":2,"remaining":1},{"limit":"service","service":"slow","burst":3,"remaining":2}]`
	want("while one runs", limits("k"), `[{"limit":"key","burst":9,"remaining":5},`+after)
	want("once more", limits("k"), `[{"limit":"key","burst":9,"remaining":4},`+after)
	end()

	want("of a tenant without limits", limits("bare"), `[{"limit":"key","burst":9,"remaining":8},{"limit":"service","service":"slow","burst":3,"remaining":3}]`)

	w.act("crew", plainCall("tools", "ann")).want(t, "for ann", 200, "", "")
	w.act("crew", plainCall("tools", "dan")).want(t, "for dan", 200, "", "")
	want("of a key with a list", limits("crew"), `[{"limit":"key","burst":9,"remaining":6},`+
		`{"limit":"tenant","on_behalf_of":"ann","burst":2,"remaining":1},{"limit":"inflight","on_behalf_of":"ann","max_inflight":1,"remaining":1},`+
		`{"limit":"tenant","on_behalf_of":"bob","burst":2,"remaining":2},{"limit":"inflight","on_behalf_of":"bob","max_inflight":1,"remaining":1},`+
		`{"limit":"tenant","burst":2,"remaining":1},{"limit":"inflight","max_inflight":1,"remaining":1}]`)
	want("of a key for one person", limits("solo"), `[{"limit":"key","burst":9,"remaining":8},`+
		`{"limit":"tenant","on_behalf_of":"bob","burst":2,"remaining":2},{"limit":"inflight","on_behalf_of":"bob","max_inflight":1,"remaining":1}]`)
}
