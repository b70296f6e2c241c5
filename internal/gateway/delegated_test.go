package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/delegation"
	"agentgw/internal/receipts"
)

// The registry of delegated worlds: tools takes delegations, signed wants them.
var delegatedRegistry = "tenants: {acme: {rps: 100, burst: 100}}\nservices:\n" + serviceLine("tools", "") + serviceLine("signed", "delegation: required,")

var (
	delegationRoot   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	delegationHolder = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
)

// delegated is a world that trusts delegationRoot, with the keys planner and worker of
// the tenant acme and free of none.
func delegated(t *testing.T, upstream http.HandlerFunc, change func(*setup)) *world {
	t.Helper()
	s := setup{registry: delegatedRegistry}
	if change != nil {
		change(&s)
	}
	w := s.world(t, upstream, of("acme", roomy("planner")), of("acme", roomy("worker")), roomy("free"))
	w.trust(delegation.Revocations{})
	return w
}

func (w *world) trust(revoked delegation.Revocations) {
	w.gateway.TrustDelegations(&delegation.Trust{
		Roots: map[string]ed25519.PublicKey{"root": delegationRoot.Public().(ed25519.PublicKey)}, Revoked: revoked,
	})
}

// grantOf is a delegation by which alice lets agent call get and stream of both
// services for an hour, and hand that on once.
func (w *world) grantOf(agent string) delegation.Grant {
	g := delegation.Grant{
		User: "alice", Agent: agent, Tenant: "acme", Depth: 1, From: w.clock.Now(), Until: w.clock.Now().Add(time.Hour),
		Thumbprint: delegation.Thumbprint(delegationHolder.Public().(ed25519.PublicKey)),
	}
	for _, service := range []string{"tools", "signed"} {
		g.Details = append(g.Details, delegation.Detail{Type: delegation.DetailType, Service: service, Actions: []string{"get", "stream"}})
	}
	return g
}

func (w *world) issue(edit func(*delegation.Grant)) (token, id string) {
	w.t.Helper()
	g := w.grantOf("planner")
	if edit != nil {
		edit(&g)
	}
	token, said, err := delegation.Issue(delegationRoot, "root", (&config.Settings{}).DelegationURI(), g)
	if err != nil {
		w.t.Fatal(err)
	}
	return token, said.ID
}

// constrained is an issue's edit: id keeps to a constraint.
func constrained(t *testing.T, text string) func(*delegation.Grant) {
	return func(g *delegation.Grant) {
		var c delegation.Constraint
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		for i := range g.Details {
			g.Details[i].Constraints = map[string]delegation.Constraint{"id": c}
		}
	}
}

func (w *world) withDelegation(key, body, token string) told {
	w.t.Helper()
	r := w.request(context.Background(), key, body)
	r.Header.Set("Agentgate-Delegation", token)
	return w.do(r)
}

// TestADelegatedCall runs, its chain is in its receipt, link by link as FORMAT.md
// spells it, and nothing of the chain reaches the service.
func TestADelegatedCall(t *testing.T) {
	var seen http.Header
	w := delegated(t, func(rw http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		hello(rw, r)
	}, nil)
	root, rootID := w.issue(nil)
	g := w.grantOf("worker")
	g.Depth, g.Thumbprint = 0, ""
	longer, said, err := delegation.Narrow(delegationHolder, root, g, w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	child := strings.TrimPrefix(longer, root+",")
	text := func(id, token, agent string) string {
		sum := sha256.Sum256([]byte(token))
		return id + " " + base64.RawURLEncoding.EncodeToString(sum[:]) + " agent:" + agent
	}
	for _, c := range []struct {
		name, key, service, token string
		chain                     []string
	}{
		{"one link, wanted", "planner", "signed", root, []string{text(rootID, root, "planner")}},
		{"one link, not wanted", "planner", "tools", root, []string{text(rootID, root, "planner")}},
		{"two links", "worker", "signed", longer, []string{text(rootID, root, "planner"), text(said.ID, child, "worker")}},
	} {
		before := len(w.ledger.all())
		w.withDelegation(c.key, plainCall(c.service, "alice"), c.token).want(t, c.name, 200, "", "")
		all := w.ledger.all()[before:]
		if len(all) != 2 || all[0].Kind != receipts.KindIntent || all[1].Kind != receipts.KindOutcome {
			t.Fatalf("%s: %+v", c.name, all)
		}
		for _, r := range all {
			if fmt.Sprint(r.Chain) != fmt.Sprint(c.chain) || r.Reason != "" {
				t.Errorf("%s, %s:\n got %q\nwant %q", c.name, r.Kind, r.Chain, c.chain)
			}
		}
		for name, values := range seen {
			if strings.HasPrefix(name, "Agentgate-") || strings.Contains(fmt.Sprint(values), root[:20]) {
				t.Errorf("%s: %s reached the service", c.name, name)
			}
		}
	}
	w.act("planner", plainCall("tools", "alice")).want(t, "none, and none is wanted", 200, "", "")
	w.act("planner", plainCall("signed", "alice")).want(t, "none, and one is wanted", 403, "delegation_required", "")
	if r := w.lastClosing(); r.Chain != nil || r.Reason != "" {
		t.Errorf("%+v", r)
	}
}

// TestADelegationThatDoesNotHold is refused in the same words whatever is wrong with
// it, on a service that wants one and on one that does not, before the service hears of
// it; the slot is given back, and the receipt says why.
func TestADelegationThatDoesNotHold(t *testing.T) {
	w := delegated(t, hello, nil)
	good, id := w.issue(nil)
	spent, _ := w.issue(func(g *delegation.Grant) { g.From, g.Until = g.From.Add(-2*time.Hour), g.From.Add(-time.Hour) })
	now, _ := w.issue(func(g *delegation.Grant) { g.From, g.Until = g.From.Add(-time.Hour), g.From })
	toGet, _ := w.issue(func(g *delegation.Grant) {
		for i := range g.Details {
			g.Details[i].Actions = []string{"get"}
		}
	})
	early, _ := w.issue(func(g *delegation.Grant) { g.From = g.From.Add(2 * time.Minute) })
	others, _ := w.issue(func(g *delegation.Grant) { g.Agent = "worker" })
	bobs, _ := w.issue(func(g *delegation.Grant) { g.User = "bob" })
	foreign, _ := w.issue(func(g *delegation.Grant) { g.Tenant = "other" })
	nothing, _ := w.issue(func(g *delegation.Grant) {
		g.Details = []delegation.Detail{{Type: delegation.DetailType, Service: "tools", Actions: []string{"other"}}}
	})
	bound, _ := w.issue(constrained(t, `{"const":"2"}`))
	revoked, revokedID := w.issue(nil)
	strangers, _, err := delegation.Issue(delegationHolder, "root", (&config.Settings{}).DelegationURI(), w.grantOf("planner"))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, _, err := delegation.Issue(delegationRoot, "root", "https://staging.example", w.grantOf("planner"))
	if err != nil {
		t.Fatal(err)
	}
	w.trust(delegation.Revocations{IDs: map[string]bool{revokedID: true}})

	var first told
	for _, c := range []struct {
		name, token, reason string
		links               int
	}{
		{"nothing", "", "malformed", 0}, {"no token", "x", "malformed", 0}, {"a key", w.keys["planner"], "malformed", 0},
		{"cut short", good[:len(good)-1], "malformed", 0}, {"a space in it", good[:9] + " " + good[9:], "malformed", 0},
		{"twice", good + "," + good, "malformed", 0}, {"of a stranger", strangers, "bad_signature", 0}, {"of another gateway", elsewhere, "wrong_issuer", 0},
		{"over", spent, "expired", 1}, {"over since this instant", now, "expired", 1}, {"not begun", early, "not_yet", 1}, {"another agent's", others, "wrong_agent", 1},
		{"another user's", bobs, "wrong_user", 1}, {"another tenant's", foreign, "wrong_tenant", 1}, {"for something else", nothing, "not_granted", 1},
		{"for other parameters", bound, "not_constrained", 1}, {"revoked", revoked, "revoked", 1},
	} {
		for _, service := range []string{"tools", "signed"} {
			got := w.withDelegation("planner", plainCall(service, "alice"), c.token)
			got.want(t, c.name, 403, "delegation_invalid", "")
			r := w.lastClosing()
			if r.Kind != receipts.KindRefusal || r.Code != "delegation_invalid" || r.Reason != c.reason || len(r.Chain) != c.links {
				t.Errorf("%s: the receipt says %q %q %q, want %q", c.name, r.Kind, r.Reason, r.Chain, c.reason)
			}
			got.body = strings.ReplaceAll(got.body, r.ID, "ID")
			for _, name := range []string{"Agentgate-Receipt", "X-Request-Id", "Date", "Ratelimit", "Ratelimit-Policy"} {
				got.header.Del(name)
			}
			if first.body == "" {
				first = got
			}
			if got.body != first.body || fmt.Sprint(got.header) != fmt.Sprint(first.header) {
				t.Errorf("%s:\n got %s %v\nwant %s %v", c.name, got.body, got.header, first.body, first.header)
			}
		}
	}
	two := w.request(context.Background(), "planner", plainCall("tools", "alice"))
	two.Header["Agentgate-Delegation"] = []string{good, good}
	w.do(two).want(t, "two headers", 403, "delegation_invalid", "")
	w.withDelegation("planner", streamCall("tools", "alice"), toGet).want(t, "for another action of the service", 403, "delegation_invalid", "")
	w.withDelegation("worker", plainCall("tools", "alice"), good).want(t, "stolen by another agent of the tenant", 403, "delegation_invalid", "")
	w.withDelegation("free", plainCall("tools", "alice"), good).want(t, "stolen by an agent of none", 403, "delegation_invalid", "")
	w.withDelegation("planner", plainCall("tools", ""), good).want(t, "for nobody", 403, "delegation_invalid", "")
	if n := w.upstreamRequests(); n != 0 || w.inFlight("tenant:acme") != 0 || w.inFlight("key:free") != 0 {
		t.Errorf("the service was called %d times, %d slots are taken", n, w.inFlight("tenant:acme"))
	}
	if strings.Contains(w.logged.String(), id) {
		t.Error("a token's id is logged")
	}
	w.withDelegation("planner", plainCall("tools", "alice"), good).want(t, "the good one", 200, "", "")
}

// TestConstraintsOfWhatIsSent: a constraint is held against the value that the service
// gets, however the caller writes it.
func TestConstraintsOfWhatIsSent(t *testing.T) {
	var path string
	w := delegated(t, func(rw http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		hello(rw, r)
	}, nil)
	call := func(params string) string { return actBody("tools", "get", "alice", `,"params":`+params) }
	for _, c := range []struct {
		constraint, params, path string // "": refused
	}{
		{`{"const":"a"}`, `{"id":"a"}`, "/get/a"},
		{`{"const":"a"}`, `{"id":"\u0061"}`, "/get/a"},
		{`{"const":"a"}`, `{"\u0069d":"a"}`, "/get/a"},
		{`{"const":"a"}`, ` { "id" : "a" } `, "/get/a"},
		{`{"const":"a/b"}`, `{"id":"a\/b"}`, "/get/a%2Fb"},
		{`{"const":"é"}`, `{"id":"\u00e9"}`, "/get/%C3%A9"},
		{`{"const":"é"}`, `{"id":"e\u0301"}`, ""},
		{`{"const":"a"}`, `{"id":"A"}`, ""},
		{`{"const":"a"}`, `{"id":"a "}`, ""},
		{`{"const":"a"}`, `{"id":"%61"}`, ""},
		{`{"const":"a"}`, `{}`, ""},
		{`{"prefix":"a-"}`, `{"id":"a-7"}`, "/get/a-7"},
		{`{"prefix":"a-"}`, `{"id":"a"}`, ""},
		{`{"enum":["a","b"]}`, `{"id":"b"}`, "/get/b"},
		{`{"enum":["a","b"]}`, `{"id":"c"}`, ""},
		{`{"max":5}`, `{"id":"4"}`, ""},
		{`{"const":5}`, `{"id":"5"}`, ""},
	} {
		token, _ := w.issue(constrained(t, c.constraint))
		path = ""
		got := w.withDelegation("planner", call(c.params), token)
		if (got.status == 200) != (c.path != "") || path != c.path {
			t.Errorf("%s, %s: %d %s, path %q, want %q", c.constraint, c.params, got.status, got.code, path, c.path)
		}
	}
	token, _ := w.issue(constrained(t, `{"const":"a"}`))
	w.withDelegation("planner", call(`{"id":"a","id":"b"}`), token).want(t, "two of one name", 400, "bad_request", "")
	w.withDelegation("planner", call(`{"id":"a","other":"b"}`), token).want(t, "one more that the action has not", 400, "bad_params", "")
}

// TestARevokedDelegationEndsItsStreams at once, and those of no other; so does the time
// of one that is over.
func TestARevokedDelegationEndsItsStreams(t *testing.T) {
	for name, end := range map[string]func(w *world, id string){
		"its token": func(w *world, id string) { w.trust(delegation.Revocations{IDs: map[string]bool{id: true}}) },
		"its user": func(w *world, _ string) {
			w.trust(delegation.Revocations{Users: map[string]time.Time{"alice": w.clock.Now()}})
		},
		"its agent": func(w *world, _ string) {
			w.trust(delegation.Revocations{Agents: map[string]time.Time{"planner": w.clock.Now()}})
		},
		"its agent's key": func(w *world, _ string) { w.trust(delegation.Revocations{Gone: map[string]bool{"planner": true}}) },
		"an agent that is none": func(w *world, _ string) {
			w.trust(delegation.Revocations{Known: func(agent string) bool { return agent != "planner" }})
		},
		"its end": func(w *world, _ string) { w.clock.Advance(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			up := newHeldStreams()
			w := delegated(t, up.serve, func(s *setup) { s.settings = func(c *config.Settings) { c.StreamIdle = 0 } })
			token, id := w.issue(nil)
			bobs, _ := w.issue(func(g *delegation.Grant) { g.User, g.Agent, g.Until = "bob", "worker", g.Until.Add(time.Hour) })
			stream := w.openStream(up, "planner", "alice", token)
			other := w.openStream(up, "worker", "bob", bobs)
			plain := w.openStream(up, "free", "alice", "")
			w.trust(delegation.Revocations{IDs: map[string]bool{"another": true}})
			end(w, id)
			looksCut(t, stream)
			eventually(t, "its outcome", func() bool { return w.lastClosing().Kind == receipts.KindOutcome })
			if r := w.lastClosing(); r.Ending != receipts.Revoked || r.Key != "planner" || r.Status != 200 || len(r.Chain) != 1 {
				t.Errorf("%+v", r)
			}
			if n := w.inFlight("tenant:acme") + w.inFlight("key:free"); n != 2 {
				t.Errorf("%d streams are left of the other two", n)
			}
			_ = other.Close()
			_ = plain.Close()
		})
	}
}

// counting is a clock that counts what it is asked to do later, and what of that was
// taken back.
type counting struct {
	clockwork.Clock
	made, stopped *atomic.Int64
}

type counted struct {
	clockwork.Timer
	stopped *atomic.Int64
}

func (c counting) AfterFunc(d time.Duration, f func()) clockwork.Timer {
	c.made.Add(1)
	return counted{c.Clock.AfterFunc(d, f), c.stopped}
}

func (c counted) Stop() bool {
	c.stopped.Add(1)
	return c.Timer.Stop()
}

// TestADelegatedCallLeavesNoTimer: what would end it with its delegation, in up to a
// day, goes with the call.
func TestADelegatedCallLeavesNoTimer(t *testing.T) {
	var made, stopped atomic.Int64
	w := delegated(t, hello, func(s *setup) {
		s.clock = func(c *clockwork.FakeClock) clockwork.Clock { return counting{c, &made, &stopped} }
	})
	token, _ := w.issue(nil)
	w.act("planner", plainCall("tools", "alice")).want(t, "without a delegation", 200, "", "")
	eventually(t, "what that call had made is stopped", func() bool { return made.Load() == stopped.Load() })
	without := made.Load()
	w.withDelegation("planner", plainCall("tools", "alice"), token).want(t, "with one", 200, "", "")
	if made.Load() == without {
		t.Error("nothing would have ended it")
	}
	eventually(t, "all is stopped", func() bool { return made.Load() == stopped.Load() })
}

// looksCut waits for the end of a stream, which has to look cut.
func looksCut(t *testing.T, stream io.Reader) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(stream)
		ended <- err
	}()
	eventually(t, "the stream ends", func() bool { return len(ended) > 0 })
	if <-ended == nil {
		t.Error("the stream looks whole")
	}
}

// openStream opens a stream that lasts until its body is closed.
func (w *world) openStream(up *heldStreams, key, user, token string) io.ReadCloser {
	w.t.Helper()
	r := w.request(w.t.Context(), key, streamCall("tools", user))
	id := fmt.Sprint(key, user)
	up.ends.Store(id, make(chan struct{}))
	r.Header.Set("Idempotency-Key", id)
	if token != "" {
		r.Header.Set("Agentgate-Delegation", token)
	}
	res, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 {
		w.t.Fatalf("%d %s", res.StatusCode, res.Header.Get("Agentgate-Code"))
	}
	return res.Body
}

// TestRevokedBeforeTheAnswer: a call that waits for its service, and one that has been
// verified and not begun, when its delegation is revoked.
func TestRevokedBeforeTheAnswer(t *testing.T) {
	called := make(chan struct{}, 1)
	var open openedOnce
	w := delegated(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		called <- struct{}{}
		<-r.Context().Done()
	}, func(s *setup) { s.vault = &open })
	token, id := w.issue(nil)
	revoke := func() { w.trust(delegation.Revocations{IDs: map[string]bool{id: true}}) }
	check := func(got told) {
		t.Helper()
		got.want(t, "revoked", 403, "delegation_invalid", "")
		if got.header.Get("X-Should-Retry") != "false" {
			t.Error("an SDK would try again, and the service may have acted")
		}
		if r := w.lastClosing(); r.Kind != receipts.KindOutcome || r.Ending != receipts.Revoked || r.Code != "delegation_invalid" {
			t.Errorf("%+v", r)
		}
		if n := w.inFlight("tenant:acme"); n != 0 {
			t.Errorf("%d slots are taken", n)
		}
	}
	answered := make(chan told, 1)
	go func() { answered <- w.withDelegation("planner", plainCall("tools", "alice"), token) }()
	<-called
	revoke()
	check(<-answered)
	noRoot := func() { w.gateway.TrustDelegations(&delegation.Trust{}) }
	for _, end := range []func(){revoke, noRoot} {
		w.trust(delegation.Revocations{})
		open.do.Store(&end) // behind step 6, and before anybody knows that the call runs
		check(w.withDelegation("planner", plainCall("tools", "alice"), token))
	}
}

// TestStreamsEndWithTheRootOfTheirDelegation, when it is rotated out of use, and those
// under another root go on.
func TestStreamsEndWithTheRootOfTheirDelegation(t *testing.T) {
	up := newHeldStreams()
	w := delegated(t, up.serve, func(s *setup) { s.settings = func(c *config.Settings) { c.StreamIdle = 0 } })
	next := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, 32))
	public := func(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }
	w.gateway.TrustDelegations(&delegation.Trust{Roots: map[string]ed25519.PublicKey{"root": public(delegationRoot), "next": public(next)}})
	token, _ := w.issue(nil)
	g := w.grantOf("worker")
	newer, _, err := delegation.Issue(next, "next", (&config.Settings{}).DelegationURI(), g)
	if err != nil {
		t.Fatal(err)
	}
	stream := w.openStream(up, "planner", "alice", token)
	stays := w.openStream(up, "worker", "alice", newer)
	w.gateway.TrustDelegations(&delegation.Trust{Roots: map[string]ed25519.PublicKey{"next": public(next)}})
	looksCut(t, stream)
	eventually(t, "its outcome", func() bool { return w.lastClosing().Kind == receipts.KindOutcome })
	if r := w.lastClosing(); r.Ending != receipts.Revoked || r.Key != "planner" {
		t.Errorf("%+v", r)
	}
	if n := w.inFlight("tenant:acme"); n != 1 {
		t.Errorf("%d streams are left of the other one", n)
	}
	_ = stays.Close()
}
