package gateway_test

import (
	"errors"
	"testing"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// TestReceiptsCommitToTheBytesAsSent: each record of a call that was read commits to
// the bytes of its parameters, under the salt of its own receipt and of the tenant
// that it says was charged. The same parameters never look the same.
func TestReceiptsCommitToTheBytesAsSent(t *testing.T) {
	named, listed := everything("n"), everything("l")
	named.Tenant = "wide"
	listed.Users = []string{"u-1", "u-2"}
	w := newWorld(t, hello, everything("k"), named, listed)
	spaced := "{ \"id\" :\t\"9007199254740993\"\n}"
	seen := map[string]string{} // by hash: of which receipt
	for _, c := range []struct{ key, behalf, tenant, params, sent string }{
		{"k", "", "key:k", spaced, spaced},
		{"k", "", "key:k", spaced, spaced}, // and once more
		{"k", "", "key:k", `{"id":"9007199254740992"}`, `{"id":"9007199254740992"}`},
		{"n", "u-9", "tenant:wide", spaced, spaced},
		{"l", "u-1", "human:u-1", spaced, spaced},
		{"l", "u-2", "human:u-2", spaced, spaced},
		{"l", "u-3", "key:l:overflow", spaced, spaced}, // which it may not: refused
		{"k", "", "key:k", `{"id":`, "no JSON"},
		{"k", "", "key:k", "", ""}, // none: refused, as the action wants one
		{"nobody", "", "", spaced, "not read"},
	} {
		body := `{"service":"tools","action":"get"`
		if c.behalf != "" {
			body += `,"on_behalf_of":"` + c.behalf + `"`
		}
		if c.params != "" {
			body += `, "params" : ` + c.params
		}
		before := len(w.ledger.all())
		w.act(c.key, body+" }")
		records := w.ledger.all()[before:]
		if len(records) == 0 {
			t.Fatalf("%+v: no record", c)
		}
		for _, r := range records {
			if c.sent == "not read" || c.sent == "no JSON" {
				if r.Params != nil {
					t.Errorf("%+v: %+v", c, r.Params)
				}
				continue
			}
			if r.Params == nil {
				t.Errorf("%+v: a %s without parameters", c, r.Kind)
				continue
			}
			salt, key, _ := w.salts.Salt(r.Tenant, r.ID)
			if r.Tenant != c.tenant || r.Params.Key != key || !r.Params.Opens(salt, []byte(c.sent)) {
				t.Errorf("%+v: %s of %s, %+v", c, r.Kind, r.Tenant, r.Params)
			}
			if other := seen[r.Params.Hash]; other != "" && other != r.ID {
				t.Errorf("%+v: receipts %s and %s look the same", c, other, r.ID)
			}
			seen[r.Params.Hash] = r.ID
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d hashes", len(seen))
	}
}

// TestWithoutASaltNoCall: a call whose receipt cannot commit to its parameters is
// not made, and its refusal is recorded; unless the operator lets through what
// cannot be recorded.
func TestWithoutASaltNoCall(t *testing.T) {
	call := `{"service":"tools","action":"get","params":{"id":"1"}}`
	for _, intent := range []string{"always", "never"} {
		w := setup{settings: func(s *config.Settings) { s.ReceiptIntent = intent }}.world(t, hello, everything("k"))
		w.salts.fail = errors.New("the store is gone")
		if got := w.act("k", call); got.status != 503 || got.code != "receipt_unavailable" || w.upstreamRequests() != 0 {
			t.Errorf("%s: %d %s, %d requests upstream", intent, got.status, got.body, w.upstreamRequests())
		}
		if all := w.ledger.all(); len(all) != 1 || all[0].Kind != receipts.KindRefusal || all[0].Code != "receipt_unavailable" || all[0].Params != nil {
			t.Errorf("%s: %+v", intent, all)
		}
		if got := w.act("k", `{"service":"nowhere","action":"get"}`); got.code != "service_not_found" {
			t.Errorf("%s: who is refused is told %d %s", intent, got.status, got.body)
		}
	}
	w := setup{settings: func(s *config.Settings) { s.ReceiptOnFailure = "allow" }}.world(t, hello, everything("k"))
	w.salts.fail = errors.New("the store is gone")
	if got := w.act("k", call); got.status != 200 || len(w.ledger.all()) != 2 || w.ledger.all()[1].Params != nil {
		t.Errorf("%d %s, %+v", got.status, got.body, w.ledger.all())
	}
}
