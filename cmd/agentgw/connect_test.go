package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/freeport"
	"agentgw/internal/registry"
	"agentgw/internal/vault"
)

// op is an authorization server, strict about what RFC 6749 and RFC 7636 want of a
// client, and a service that takes its tokens.
type op struct {
	*httptest.Server
	t      *testing.T
	mu     sync.Mutex
	query  url.Values // of the newest code
	tokens int
	seen   []string // Authorization at the service
	deny   bool
	iss    string
	answer string // of the token endpoint, in the place of its own
}

func newOP(t *testing.T) *op {
	p := &op{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.query = r.URL.Query()
		back := url.Values{"state": p.query["state"], "code": {"code-canary"}}
		if p.iss != "" {
			back.Set("iss", p.iss)
		}
		if p.deny {
			back = url.Values{"state": p.query["state"], "error": {"access_denied"}, "error_description": {"<script>canary"}, "iss": {p.iss}}
		}
		http.Redirect(w, r, p.query.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = r.ParseForm()
		p.tokens++
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		id, secret, _ := r.BasicAuth()
		if p.query == nil || r.PostForm.Get("code") != "code-canary" || p.query.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			p.query.Get("code_challenge_method") != "S256" || p.query.Get("redirect_uri") != r.PostForm.Get("redirect_uri") ||
			len(r.PostForm.Get("code_verifier")) < 43 || id != "gw" || secret != "client-secret-canary" {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
			return
		}
		p.query = nil // a code is good once
		if p.answer != "" {
			_, _ = io.WriteString(w, p.answer)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("access-canary-", p.tokens), "refresh_token": "refresh-canary", "token_type": "bearer", "expires_in": 3600})
	})
	mux.HandleFunc("GET /mail", func(_ http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen = append(p.seen, r.Header.Get("Authorization"))
	})
	p.Server = httptest.NewServer(mux)
	p.iss = p.URL
	t.Cleanup(p.Close)
	return p
}

// connecting is a gateway with a service mail at that server, in the bench's folder.
func connecting(t *testing.T, b *bench, p *op) (base string, said *lockedBuffer, s *server) {
	t.Helper()
	listen := freeport.Address(t)
	text := fmt.Sprintf(`version: 1
server: {listen: %q, public_url: "http://%[1]s", rate_auth_per_minute: 40}
services:
  mail:
    base_url: %[2]s
    allow_private: true
    credential: {type: oauth2, scope: user, authorize_url: %[2]s/authorize, token_url: %[2]s/token, issuer: %[2]s, client_id: gw, scopes: [mail.read], allow_private: true}
    actions: {read: {method: GET, path: /mail}}
  plain: {base_url: %[2]s, allow_private: true, actions: {read: {method: GET, path: /mail}}}
`, listen, p.URL)
	said, s = connectable(t, b, text)
	return "http://" + listen, said, s
}

// connectable is a gateway with that registry, which has the client secret of its
// service mail.
func connectable(t *testing.T, b *bench, text string) (said *lockedBuffer, s *server) {
	t.Helper()
	b.write("registry.yaml", []byte(text))
	snapshot, err := registry.Load("registry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--data-dir", b.data, "--admin-listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	var server []config.Setting
	for _, m := range snapshot.Server {
		server = append(server, config.Setting{Name: m.Name, Value: m.Value})
	}
	settings, err := config.Load(flags, nil, server)
	if err != nil {
		t.Fatal(err)
	}
	said = &lockedBuffer{}
	s, err = start(settings, snapshot, nil, slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(context.Background()) })
	if code, _, stderr := b.run("client-secret-canary\n", "credentials", "set", "--service", "mail", "--client-secret"); code != exitDone {
		t.Fatal(stderr)
	}
	eventually(t, "the client's secret is there", func() bool { return s.vault.Reload(t.Context()) == nil })
	return said, s
}

// browser follows redirects and keeps cookies.
type browser struct {
	*http.Client
	t    *testing.T
	hops []*http.Response
}

func newBrowser(t *testing.T) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t}
	b.Client = &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		b.hops = append(b.hops, r.Response)
		return nil
	}}
	return b
}

func (b *browser) open(address string) (int, string, http.Header) {
	b.t.Helper()
	res, err := b.Get(address)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, string(body), res.Header
}

func (b *bench) link(args ...string) string {
	b.t.Helper()
	stdout, _ := b.want(exitDone, append([]string{"credentials", "link", "--service", "mail", "--user", "alice"}, args...)...)
	return strings.TrimSpace(stdout)
}

// TestAPersonConnectsAnAccount by a link of the operator's, once, and her agent's calls
// carry her token.
func TestAPersonConnectsAnAccount(t *testing.T) {
	b, p := newBench(t, ""), newOP(t)
	base, said, s := connecting(t, b, p)
	call := func() (int, string) {
		r, _ := http.NewRequest(http.MethodPost, base+"/v1/act", strings.NewReader(`{"service":"mail","action":"read","on_behalf_of":"alice"}`))
		r.Header.Set("Authorization", "Bearer "+s.firstKey.Reveal())
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	if status, body := call(); status != 403 || !strings.Contains(body, `"credential_missing"`) || !strings.Contains(body, "agentgw credentials link --service mail --user USER") {
		t.Errorf("before: %d %s", status, body)
	}
	link := b.link()
	if !strings.HasPrefix(link, base+"/oauth/mail/start?link=") {
		t.Fatalf("the link is %s", link)
	}
	// Whoever fetches it ahead of the person, as mail programs do, uses nothing up.
	ahead := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for range 3 {
		res, err := ahead.Get(link)
		if err != nil || res.StatusCode != http.StatusSeeOther {
			t.Fatalf("%v, %v", res, err)
		}
		_ = res.Body.Close()
	}
	alice := newBrowser(t)
	status, text, header := alice.open(link)
	if status != 200 || text != "The account is connected. You can close this window.\n" {
		t.Fatalf("%d %s\n%s", status, text, said.String())
	}
	for _, h := range []http.Header{header, alice.hops[0].Header} {
		if h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("the header is %v", h)
		}
	}
	if c := alice.hops[0].Header.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Lax") || !strings.Contains(c, "Path=/oauth/mail/callback") {
		t.Errorf("the cookie is %s", c)
	}
	if c := alice.hops[0].Header.Get("Set-Cookie"); !strings.Contains(c, "Max-Age=600;") {
		t.Errorf("the cookie outlasts what it is for: %s", c)
	}
	if c := header.Get("Set-Cookie"); !strings.HasPrefix(c, "agentgw_oauth=;") || !strings.Contains(c, "Max-Age=0") || !strings.Contains(c, "Path=/oauth/mail/callback") {
		t.Errorf("the cookie stays: %s", c)
	}
	eventually(t, "her agent's call has her token", func() bool { status, _ := call(); return status == 200 })
	if got := p.seen[len(p.seen)-1]; got != "Bearer access-canary-1" {
		t.Errorf("the service sees %q", got)
	}
	if status, text, _ := newBrowser(t).open(link); status != 404 || !strings.Contains(text, "not valid") || p.tokens != 1 {
		t.Errorf("again: %d %s, %d tokens", status, text, p.tokens)
	}
	stdout, _ := b.want(exitDone, "credentials", "list", "--json")
	if !strings.Contains(stdout, `"kind": "token"`) && !strings.Contains(stdout, `"kind":"token"`) {
		t.Errorf("the list is %s", stdout)
	}
	records, _ := os.ReadFile("data/state.db")
	for what, text := range map[string]string{"the log": said.String(), "the list": stdout, "the store": string(records)} {
		if strings.Contains(text, "canary") || strings.Contains(text, link[strings.Index(link, "link=")+5:]) {
			t.Errorf("%s has a secret", what)
		}
	}
}

// TestWhatConnectsNothing: each comes from a stranger, or too late, and no token is
// asked for.
func TestWhatConnectsNothing(t *testing.T) {
	b, p := newBench(t, ""), newOP(t)
	base, said, _ := connecting(t, b, p)
	begin := func(client *browser, link string) url.Values { // up to where the server would send her back
		client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if strings.Contains(r.URL.Path, "/callback") {
				client.hops = []*http.Response{{Request: r}}
				return http.ErrUseLastResponse
			}
			return nil
		}
		client.open(link)
		return client.hops[0].Request.URL.Query()
	}
	other := newBrowser(t)
	link := b.link()
	stranger := begin(newBrowser(t), link) // who has begun with the same link, elsewhere
	own := begin(other, link)
	asked := p.query
	for name, change := range map[string]func(q url.Values){
		"no state":                 func(q url.Values) { q.Del("state") },
		"another's state":          func(q url.Values) { q.Set("state", stranger.Get("state")) },
		"two states":               func(q url.Values) { q.Add("state", q.Get("state")) },
		"no issuer":                func(q url.Values) { q.Del("iss") },
		"another issuer":           func(q url.Values) { q.Set("iss", p.URL+"/") },
		"two issuers":              func(q url.Values) { q.Add("iss", q.Get("iss")) },
		"another service's answer": func(q url.Values) { q.Set("service", "plain") },
	} {
		q := url.Values{}
		for k, v := range own {
			q[k] = append([]string(nil), v...)
		}
		change(q)
		path := "mail"
		if q.Has("service") {
			path = "plain"
		}
		if status, text, _ := other.open(base + "/oauth/" + path + "/callback?" + q.Encode()); status != 400 || !strings.Contains(text, "does not belong") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text, _ := newBrowser(t).open(base + "/oauth/mail/callback?" + own.Encode()); status != 400 { // no cookie
		t.Errorf("in another browser: %d %s", status, text)
	}
	p.deny = true
	denied := newBrowser(t)
	if status, text, _ := denied.open(link); status != 403 || strings.Contains(text, "canary") || strings.Contains(text, "script") {
		t.Errorf("denied: %d %s", status, text)
	}
	p.deny = false
	both := url.Values{"error": {"access_denied"}}
	for k, v := range own {
		both[k] = v
	}
	if status, text, _ := other.open(base + "/oauth/mail/callback?" + both.Encode()); status != 403 {
		t.Errorf("an error beside the code: %d %s", status, text)
	}
	for name, address := range map[string]string{
		"an unknown link": base + "/oauth/mail/start?link=" + strings.Repeat("A", 26), "no link": base + "/oauth/mail/start",
		"of no service": base + "/oauth/none/start?link=" + link[strings.Index(link, "link=")+5:], "of a service without accounts": strings.Replace(link, "/mail/", "/plain/", 1),
		"twice the link": link + "&" + link[strings.Index(link, "link="):],
	} {
		if status, text, _ := newBrowser(t).open(address); status != 404 || text != "This link is not valid: it was used, or it has expired. Ask whoever sent it for another one.\n" {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if p.tokens != 0 {
		t.Errorf("%d tokens were asked for", p.tokens)
	}
	if strings.Contains(said.String(), "canary") {
		t.Errorf("the log has a secret:\n%s", said.String())
	}
	// She herself still connects.
	p.query = asked
	if status, text, _ := other.open(base + "/oauth/mail/callback?" + own.Encode()); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	limited := 0
	for range 60 {
		if status, _, header := newBrowser(t).open(base + "/oauth/mail/start"); status == 429 && header.Get("Retry-After") != "" {
			limited++
		}
	}
	if limited < 20 {
		t.Errorf("of 60 requests beyond 40 a minute %d were limited", limited)
	}
}

// TestPeopleBehindTLS: where people come by https, what ties them to their browser goes
// over nothing else; what a stranger has the callback called with stays out of the log;
// and a link to what nobody can connect any more is none.
func TestPeopleBehindTLS(t *testing.T) {
	b, p := newBench(t, ""), newOP(t)
	listen := freeport.Address(t)
	said, s := connectable(t, b, fmt.Sprintf(`version: 1
server: {listen: %q, public_url: "https://gw.example/sub"}
services:
  mail:
    base_url: %[2]s
    allow_private: true
    credential: {type: oauth2, scope: user, authorize_url: %[2]s/authorize, token_url: %[2]s/token, client_id: gw, allow_private: true}
    actions: {read: {method: GET, path: /mail}}
  own:
    base_url: %[2]s
    allow_private: true
    credential: {type: oauth2, flow: client_credentials, token_url: %[2]s/token, client_id: gw, allow_private: true}
    actions: {read: {method: GET, path: /mail}}
`, listen, p.URL))
	ahead := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(path string, cookies ...*http.Cookie) *http.Response {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "http://"+listen+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cookies {
			r.AddCookie(c)
		}
		res, err := ahead.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res
	}
	link := b.link()
	begun := get(strings.TrimPrefix(link, "https://gw.example/sub"))
	cookies := begun.Cookies()
	if begun.StatusCode != 303 || len(cookies) != 1 || !cookies[0].Secure || !cookies[0].HttpOnly || cookies[0].Path != "/sub/oauth/mail/callback" {
		t.Fatalf("%s %v", begun.Status, begun.Header)
	}
	to, err := begun.Location()
	if err != nil || to.Query().Get("redirect_uri") != "https://gw.example/sub/oauth/mail/callback" {
		t.Fatalf("%v, %v", to, err)
	}
	refused := get("/oauth/mail/callback?"+url.Values{"state": {to.Query().Get("state")}, "error": {"a stranger's canary"}}.Encode(), cookies[0])
	if refused.StatusCode != 403 || strings.Contains(said.String(), "canary") || !strings.Contains(said.String(), "access was not granted") {
		t.Errorf("%s\n%s", refused.Status, said.String())
	}
	made, err := vault.NewLink(t.Context(), s.store, vault.Ref{Service: "own"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if res := get("/oauth/own/start?link=" + made); res.StatusCode != 404 {
		t.Errorf("a client's own account: %s", res.Status)
	}
}

// TestWhomAnotherSiteHasSent is asked first, in a page that does nothing by itself: a
// stranger could have sent her with a link that is for himself.
func TestWhomAnotherSiteHasSent(t *testing.T) {
	b, p := newBench(t, ""), newOP(t)
	base, _, _ := connecting(t, b, p)
	stdout, _ := b.want(exitDone, "credentials", "link", "--service", "mail", "--user", `<b>"mallory"`)
	link := strings.TrimSpace(stdout)
	open := func(alice *browser, address, site string) (int, string, http.Header) {
		r, err := http.NewRequest(http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-Fetch-Site", site)
		res, err := alice.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text), res.Header
	}
	for _, site := range []string{"cross-site", "same-site"} {
		alice := newBrowser(t)
		status, text, header := open(alice, link, site)
		if status != 200 || len(alice.hops) != 0 || len(header["Set-Cookie"]) != 0 || p.query != nil {
			t.Fatalf("%s: %d, %d hops, %v\n%s", site, status, len(alice.hops), header, text)
		}
		if !strings.Contains(text, "the user &lt;b&gt;&#34;mallory&#34;.") || strings.Contains(text, "<b>") || !strings.HasPrefix(header.Get("Content-Type"), "text/html") ||
			header.Get("Cache-Control") != "no-store" || !strings.Contains(header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v\n%s", site, header, text)
		}
		if status, _, _ := open(newBrowser(t), base+"/oauth/mail/start?link=none", site); status != 404 {
			t.Errorf("%s, no link: %d", site, status)
		}
	}
	alice := newBrowser(t)
	_, text, _ := open(alice, link, "cross-site")
	_, on, _ := strings.Cut(text, `href="`)
	on, _, _ = strings.Cut(on, `"`)
	if status, text, _ := open(alice, base+"/oauth/mail/start"+on, "same-origin"); status != 200 || !strings.HasPrefix(text, "The account is connected") {
		t.Errorf("she goes on to %q: %d %s", on, status, text)
	}
	link = b.link()
	if status, text, _ := open(newBrowser(t), link, "none"); status != 200 || !strings.HasPrefix(text, "The account is connected") {
		t.Errorf("opened by herself: %d %s", status, text)
	}
}

// TestTokensThatCannotBeUsed connect nothing, and that is the fault of who gave them.
func TestTokensThatCannotBeUsed(t *testing.T) {
	b, p := newBench(t, ""), newOP(t)
	connecting(t, b, p)
	for _, p.answer = range []string{
		"<html>", `{"access_token":"a","token_type":"mac"}`, `{"access_token":["a"],"token_type":"bearer"}`, `{"access_token":"a\nb","token_type":"bearer"}`,
		strings.Repeat(" ", 2<<20),
	} {
		if status, text, _ := newBrowser(t).open(b.link()); status != 502 || !strings.Contains(text, "gave no access") {
			t.Errorf("%.40s: %d %s", p.answer, status, text)
		}
	}
	if stdout, _ := b.want(exitDone, "credentials", "list"); strings.Contains(stdout, "alice") {
		t.Errorf("the list is\n%s", stdout)
	}
}

func TestLinksThatAreNotMade(t *testing.T) {
	b, p := newBench(t, ""), newOP(t)
	connecting(t, b, p)
	for args, says := range map[string]string{
		"--service plain":               "plain takes no credential",
		"--service none":                "there is no service",
		"--service mail --expires 0s":   "--expires",
		"--service mail --expires 200h": "--expires",
		"--service mail --user=":        "--user: is empty",
	} {
		if _, stderr := b.want(exitUsage, append([]string{"credentials", "link"}, strings.Fields(args)...)...); !strings.Contains(stderr, says) {
			t.Errorf("%s: %s", args, stderr)
		}
	}
}
