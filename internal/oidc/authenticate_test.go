package oidc_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/identity"
	"agentgw/internal/oidc"
	"agentgw/internal/oidc/oidctest"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newClock() *clockwork.FakeClock { return clockwork.NewFakeClockAt(noon) }

// world is an issuer and what takes its tokens.
type world struct {
	t      testing.TB
	idp    *oidctest.IdP
	clock  *clockwork.FakeClock
	logged *logged
	tokens *oidc.Tokens
}

// newWorld takes tokens of an issuer that the registry has as entry, in which %s is
// the issuer's URL. It returns when its keys are there.
func newWorld(t testing.TB, entry string) *world {
	w := &world{t: t, idp: oidctest.New(t), clock: newClock(), logged: new(logged)}
	w.tokens = w.take(entry)
	w.eventually("the keys are there", func() bool { return w.ask(w.idp.Token(noon, "first", map[string]any{"azp": "web"})) == nil })
	return w
}

func (w *world) take(entry string) *oidc.Tokens {
	w.t.Helper()
	file := "services: {github: {base_url: https://api.example, actions: {list_issues: {method: GET, path: /x}}}, search: {base_url: https://s.example, actions: {query: {method: GET, path: /q}}}}\n" +
		"tenants: {acme: {}}\nissuers:\n  - {issuer: " + w.idp.URL + ", allow_private: true, " + entry + "}\n"
	s, err := registry.Parse("registry.yaml", []byte(file))
	if err != nil {
		w.t.Fatal(err)
	}
	set, err := rules.Compile(s)
	if err != nil {
		w.t.Fatal(err)
	}
	return oidc.NewIssuers(func(bool) *http.Transport { return http.DefaultTransport.(*http.Transport) }, w.clock, w.log()).Tokens(s.Issuers, set.Conditions())
}

func (w *world) log() *slog.Logger { return slog.New(slog.NewTextHandler(w.logged, nil)) }

// logged is what was logged.
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

func (w *world) caller(token string) (*identity.Key, error) {
	s, err := w.tokens.Authenticate(context.Background(), token, w.clock.Now())
	if err != nil {
		return nil, err
	}
	return s.Key, nil
}

func (w *world) ask(token string) error {
	_, err := w.caller(token)
	return err
}

// eventually waits for an effect of something that goes on beside the test.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s", what)
		}
	}
}

const open = `audience: agentgate, services: ["*"]`

// TestWhichTokensAreTaken: each of what a token has to be is looked at, and no
// other spelling of a good one is good.
func TestWhichTokensAreTaken(t *testing.T) {
	w := newWorld(t, open+", azp: [web]")
	type m = map[string]any
	with := func(others m) string {
		if _, has := others["azp"]; !has {
			others["azp"] = "web"
		}
		return w.idp.Token(noon, "alice", others)
	}
	header := func(h m) string { return w.idp.Signer().Sign(h, w.idp.Claims(noon, "alice", m{"azp": "web"})) }
	raw := func(h, p string) string { return w.idp.Signer().SignRaw(h, p) }
	good, at := with(m{}), func(d time.Duration) int64 { return noon.Add(d).Unix() }
	kid := w.idp.Signer().Kid
	part := strings.Split(good, ".")
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" // of base64url; the last of 64 bytes' has four bits to spare
	payload := func(more string) string {
		return `{"iss":"` + w.idp.URL + `","aud":"agentgate","sub":"alice","azp":"web","exp":9999999999` + more + `}`
	}
	for _, c := range []struct {
		name, token, why string
	}{
		{"good", good, ""},
		{"typ JWT", header(m{"typ": "JWT"}), ""},
		{"typ at+jwt", header(m{"typ": "at+jwt"}), ""},
		{"typ in full and in capitals", header(m{"typ": "APPLICATION/AT+JWT"}), ""},
		{"x5t", header(m{"x5t": "abc"}), ""},
		{"no kid", header(m{"kid": nil}), ""},
		{"typ of a delegation", header(m{"typ": "agent-delegation+jwt"}), "typ"},
		{"typ of a logout token", header(m{"typ": "logout+jwt"}), "typ"},
		{"typ no text", header(m{"typ": 1}), "typ"},
		{"typ with a space behind it", header(m{"typ": "JWT "}), "typ"},
		{"typ that is a type twice", header(m{"typ": "application/application/jwt"}), "typ"},
		{"typ with a parameter", header(m{"typ": "JWT;x=y"}), "typ"},
		{"crit", header(m{"crit": []string{"exp"}}), "header"},
		{"b64", header(m{"b64": false}), "header"},
		{"jku", header(m{"jku": w.idp.URL}), "header"},
		{"jwk", header(m{"jwk": w.idp.Signer().JWK()}), "header"},
		{"x5u", header(m{"x5u": w.idp.URL}), "header"},
		{"x5c", header(m{"x5c": []string{}}), "header"},
		{"zip", header(m{"zip": "DEF"}), "header"},
		{"alg none", header(m{"alg": "none"}), "algorithm"},
		{"alg none without a signature", part[0] + "." + part[1] + ".", "three parts"},
		{"alg HS256", header(m{"alg": "HS256"}), "algorithm"},
		{"another alg than the key's", header(m{"alg": "ES384"}), "signature"},
		{"no alg", header(m{"alg": nil}), "algorithm"},
		{"kid no text", header(m{"kid": 1}), "header"},
		{"header twice over", raw(`{"alg":"ES256","kid":"`+kid+`","alg":"ES256"}`, payload("")), "header"},
		{"header a list", raw(`["alg"]`, payload("")), "header"},
		{"another's key under this kid", oidctest.NewSigner(t, kid).Sign(nil, w.idp.Claims(noon, "alice", m{"azp": "web"})), "signature"},
		{"another token's signature", part[0] + "." + strings.Split(with(m{"sub": "bob"}), ".")[1] + "." + part[2], "signature"},
		{"a line end", part[0] + "." + part[1] + "\n." + part[2], "three parts"},
		{"padding", good + "=", "three parts"},
		{"bits that mean nothing", good[:len(good)-1] + string(alphabet[strings.IndexByte(alphabet, good[len(good)-1])|1]), "three parts"},
		{"a space behind", good + " ", "three parts"},
		{"a plus", strings.Replace(good, part[2], "+"+part[2][1:], 1), "three parts"},
		{"four parts", good + ".e30", "three parts"},
		{"five parts, as encrypted ones have", strings.Repeat("e30.", 4) + "e30", "three parts"},
		{"a megabyte of dots", strings.Repeat(".", 1<<20), "16 KiB"},
		{"16 KiB of dots", strings.Repeat(".", 16<<10), "three parts"},
		{"too long", with(m{"x": strings.Repeat("x", 16<<10)}), "16 KiB"},
		{"JSON serialisation", `{"payload":"` + part[1] + `","protected":"` + part[0] + `","signature":"` + part[2] + `"}`, "three parts"},

		{"payload twice over", raw(`{"alg":"ES256","kid":"`+kid+`"}`, payload(`,"aud":"agentgate"`)), "payload"},
		{"another case of a claim beside it", raw(`{"alg":"ES256","kid":"`+kid+`"}`, payload(`,"AUD":"other"`)), ""},
		{"another case of a claim alone", raw(`{"alg":"ES256","kid":"`+kid+`"}`, strings.Replace(payload(""), `"aud"`, `"AUD"`, 1)), "aud"},
		{"payload no JSON", raw(`{"alg":"ES256","kid":"`+kid+`"}`, "foo"), "payload"},
		{"payload null", raw(`{"alg":"ES256","kid":"`+kid+`"}`, "null"), "payload"},
		{"bytes that are no text", raw(`{"alg":"ES256","kid":"`+kid+`"}`, payload(",\"x\":\"\xff\"")), "payload"},

		{"aud in a list", with(m{"aud": []string{"agentgate"}}), ""},
		{"aud of staging", with(m{"aud": "agentgate-staging"}), "aud"},
		{"no aud", with(m{"aud": nil}), "aud"},
		{"aud null in a list", with(m{"aud": []any{nil}}), "aud"},
		{"two aud", with(m{"aud": []string{"agentgate", "other"}}), "aud"},
		{"aud twice", with(m{"aud": []string{"agentgate", "agentgate"}}), "aud"},
		{"aud an object", with(m{"aud": m{"agentgate": true}}), "aud"},
		{"aud in another case", with(m{"aud": "Agentgate"}), "aud"},
		{"iss with a slash", with(m{"iss": w.idp.URL + "/"}), "iss"},
		{"iss in capitals", with(m{"iss": strings.ToUpper(w.idp.URL)}), "iss"},
		{"no iss", with(m{"iss": nil}), "iss"},
		{"another azp", with(m{"azp": "other"}), "azp"},
		{"azp no text", with(m{"azp": []string{"web"}}), "azp"},
		{"no azp, but client_id", w.idp.Token(noon, "alice", m{"client_id": "web"}), ""},
		{"neither", w.idp.Token(noon, "alice", nil), "azp"},
		{"azp and another client_id", with(m{"client_id": "other"}), ""},

		{"exp a minute ago, less a second", with(m{"exp": at(-59 * time.Second)}), ""},
		{"exp a minute ago", with(m{"exp": at(-60 * time.Second)}), "expired"},
		{"no exp", with(m{"exp": nil}), "exp"},
		{"exp a text", with(m{"exp": "9999999999"}), "exp"},
		{"exp beyond all", with(m{"exp": 1e300}), "exp"},
		{"exp below all", with(m{"exp": -1}), "exp"},
		{"nbf in a minute", with(m{"nbf": at(60 * time.Second)}), ""},
		{"nbf later", with(m{"nbf": at(61 * time.Second)}), "time has not come"},
		{"nbf a text", with(m{"nbf": "0"}), "nbf"},
		{"iat in a minute", with(m{"iat": at(60 * time.Second)}), ""},
		{"iat later", with(m{"iat": at(61 * time.Second)}), "time has not come"},
		{"no iat", with(m{"iat": nil}), ""},
		{"times with fractions", with(m{"iat": float64(noon.Unix()) + 0.25}), ""},

		{"bound to a key", with(m{"cnf": m{"jkt": "x"}}), "cnf"},
		{"of events", with(m{"events": m{}}), "events"},
		{"no sub", with(m{"sub": nil}), "sub"},
		{"sub empty", with(m{"sub": ""}), "sub"},
		{"sub a number", with(m{"sub": 42}), "sub"},
		{"sub of 255 bytes", with(m{"sub": strings.Repeat("x", 255)}), ""},
		{"sub of 256 bytes", with(m{"sub": strings.Repeat("x", 256)}), "sub"},
		{"sub with a NUL", with(m{"sub": "alice\x00"}), "sub"},
		{"sub with a line end", with(m{"sub": "alice\nbob"}), "sub"},
		{"empty", "", "three parts"},
	} {
		err := w.ask(c.token)
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: %v, want something about %s", c.name, err, c.why)
		case err != nil && !errors.As(err, new(*oidc.Refusal)):
			t.Errorf("%s: %T", c.name, err)
		case err != nil && len(c.token) > 20 && strings.Contains(err.Error(), c.token[:20]):
			t.Errorf("%s: the reason quotes the token", c.name)
		}
	}
}

// TestATokenThatIsKnownKeepsToItsTime: being remembered makes no token last longer.
func TestATokenThatIsKnownKeepsToItsTime(t *testing.T) {
	w := newWorld(t, open)
	token := w.idp.Token(noon, "alice", map[string]any{"exp": noon.Add(10 * time.Second).Unix()})
	for _, c := range []struct {
		at   time.Duration
		good bool
	}{{0, true}, {9 * time.Second, true}, {69 * time.Second, true}, {70 * time.Second, false}, {0, true}} {
		_, err := w.tokens.Authenticate(context.Background(), token, noon.Add(c.at))
		if (err == nil) != c.good {
			t.Errorf("after %s: %v", c.at, err)
		}
	}
}

// TestTokensWithOneBeginning: two tokens that share their first 300 characters, and
// more, are of two callers (CVE-2026-35030).
func TestTokensWithOneBeginning(t *testing.T) {
	w := newWorld(t, open)
	header := `{"alg":"ES256","kid":"` + w.idp.Signer().Kid + `","x":"` + strings.Repeat("x", 300) + `"}`
	payload := func(sub string) string {
		return `{"iss":"` + w.idp.URL + `","aud":"agentgate","exp":9999999999,"sub":"` + sub + `"}`
	}
	one, two := w.idp.Signer().SignRaw(header, payload("alice")), w.idp.Signer().SignRaw(header, payload("alicf"))
	if one[:300] != two[:300] {
		t.Fatal("they do not share a beginning")
	}
	for range 2 {
		for token, sub := range map[string]string{one: "alice", two: "alicf"} {
			k, err := w.caller(token)
			if err != nil || k.ID != "oidc:"+w.idp.URL+"#"+sub {
				t.Errorf("%s: %v, %v", sub, k, err)
			}
		}
	}
}
