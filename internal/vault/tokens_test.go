package vault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/oauth"
	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// idp is a token endpoint that rotates refresh tokens, takes each once, and voids
// all of an account when one comes twice.
type idp struct {
	*httptest.Server
	mu     sync.Mutex
	good   string // the refresh token that is taken
	n      int    // of the newest tokens
	hits   int
	life   int // seconds
	before func(w http.ResponseWriter) (answered bool)
}

func newIDP(t *testing.T) *idp {
	p := &idp{good: "r0", life: 3600}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hits++
		if p.before != nil && p.before(w) {
			return
		}
		if id, secret, _ := r.BasicAuth(); id != "gw" || secret != "client-secret" {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
			return
		}
		if r.PostForm.Get("grant_type") == "refresh_token" && r.PostForm.Get("refresh_token") != p.good {
			p.good = "void"
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
			return
		}
		p.n++
		p.good = fmt.Sprint("r", p.n)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("a", p.n), "refresh_token": p.good, "token_type": "Bearer", "expires_in": p.life})
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *idp) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func (p *idp) set(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

func (p *idp) form(perUser bool) vault.Form {
	return vault.Form{Type: vault.TypeOAuth2, PerUser: perUser, Host: "api.example", OAuth2: &vault.OAuth2{
		Client: oauth.Client{TokenURL: p.URL + "/token", ID: "gw"}, AllowPrivate: true,
	}}
}

// bank is Tokens of one process over a store, and a connected account in it.
type bank struct {
	*vault.Tokens
	vault *vault.Vault
	clock *clockwork.FakeClock
	log   *strings.Builder
}

var alice = vault.Ref{Service: "mail", User: "alice"}

func newBank(t *testing.T, s vault.TokenStore, clock *clockwork.FakeClock) *bank {
	t.Helper()
	b := &bank{vault: load(t, s, "0"), clock: clock, log: &strings.Builder{}}
	transport := &http.Transport{}
	b.Tokens = vault.NewTokens(b.vault, s, clock, slog.New(slog.NewTextHandler(&locked{w: b.log}, nil)), func(private bool) http.RoundTripper {
		if !private {
			t.Error("a private endpoint is dialled as a public one")
		}
		return transport
	})
	t.Cleanup(func() { b.Close(); transport.CloseIdleConnections() })
	return b
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// connected is a bank in which alice has the refresh token r0 and no access token.
func connected(t *testing.T, s vault.TokenStore, p *idp) *bank {
	t.Helper()
	b := newBank(t, s, clockwork.NewFakeClockAt(noon))
	if err := b.vault.SetClient(t.Context(), "mail", p.form(true).OAuth2, secret.New("client-secret"), noon); err != nil {
		t.Fatal(err)
	}
	if err := b.vault.SetRefresh(t.Context(), alice, p.form(true), secret.New("r0"), noon); err != nil {
		t.Fatal(err)
	}
	return b
}

// sends is what a call for alice would carry.
func (b *bank) sends(ctx context.Context, p *idp) (string, error) {
	c, err := b.Open(ctx, alice, p.form(true))
	if err != nil {
		return "", err
	}
	r, err := http.NewRequest(http.MethodGet, "https://api.example/", nil)
	if err != nil {
		return "", err
	}
	err = c.Apply(r)
	return r.Header.Get("Authorization"), err
}

func (b *bank) mustSend(t *testing.T, p *idp, want string) {
	t.Helper()
	if got, err := b.sends(t.Context(), p); err != nil || got != "Bearer "+want {
		t.Fatalf("sends %q, %v, want %s", got, err, want)
	}
}

// asleep waits, bounded, until so many wait for the clock.
func asleep(t *testing.T, clock *clockwork.FakeClock, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if clock.BlockUntilContext(ctx, n) != nil {
		t.Fatalf("never: %d wait for the clock", n)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestATokenIsRenewedOnceForAll: 200 calls with a token a second from its end make one
// request to the token endpoint, and all have a token.
func TestATokenIsRenewedOnceForAll(t *testing.T) {
	p := newIDP(t)
	b := connected(t, openStore(t, t.TempDir()), p)
	b.mustSend(t, p, "a1")
	b.clock.Advance(3599 * time.Second)
	release := make(chan struct{})
	p.set(func() {
		p.before = func(http.ResponseWriter) bool { <-release; return false }
	})
	var wg sync.WaitGroup
	var good atomic.Int64
	begun := make(chan struct{}, 200)
	for range 200 {
		wg.Go(func() {
			begun <- struct{}{}
			if got, err := b.sends(t.Context(), p); err != nil || got != "Bearer a2" {
				t.Errorf("%q, %v", got, err)
				return
			}
			good.Add(1)
		})
	}
	for range 200 {
		<-begun
	}
	close(release)
	wg.Wait()
	if p.asked() != 2 || good.Load() != 200 {
		t.Errorf("the endpoint was asked %d times, %d of 200 calls have a token", p.asked()-1, good.Load())
	}
}

// TestTwoProcessesRenewOnce: two stores on one file, as two processes have, 100 calls
// each, and then once more when both tokens have ended.
func TestTwoProcessesRenewOnce(t *testing.T) {
	p, folder := newIDP(t), t.TempDir()
	a := connected(t, openStore(t, folder), p)
	c := newBank(t, openStore(t, folder), a.clock)
	for round := 1; round <= 3; round++ {
		want := fmt.Sprint("Bearer a", round)
		done := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 200 {
			b := []*bank{a, c}[i%2]
			wg.Go(func() {
				if got, err := b.sends(t.Context(), p); err != nil || got != want {
					t.Errorf("round %d: %q, %v", round, got, err)
				}
			})
		}
		go func() { wg.Wait(); close(done) }()
		for waiting := true; waiting; { // the one that waits for the other looks every 250 ms
			select {
			case <-done:
				waiting = false
			case <-time.After(5 * time.Millisecond):
				a.clock.Advance(10 * time.Millisecond)
			}
		}
		if p.asked() != round {
			t.Fatalf("round %d: the endpoint was asked %d times", round, p.asked())
		}
		a.clock.Advance(time.Hour)
	}
}

// TestATokenIsRenewedAhead of its end, behind a call that uses the old one.
func TestATokenIsRenewedAhead(t *testing.T) {
	p := newIDP(t)
	b := connected(t, openStore(t, t.TempDir()), p)
	b.mustSend(t, p, "a1")
	b.clock.Advance(2690 * time.Second) // under 75 % of its life
	b.mustSend(t, p, "a1")
	if p.asked() != 1 {
		t.Fatal("it is renewed too early")
	}
	release := make(chan struct{})
	p.set(func() { p.before = func(http.ResponseWriter) bool { <-release; return false } })
	b.clock.Advance(380 * time.Second) // over 85 %
	b.mustSend(t, p, "a1")             // does not wait
	b.mustSend(t, p, "a1")
	close(release)
	eventually(t, "the new token is in use", func() bool {
		got, err := b.sends(t.Context(), p)
		return err == nil && got == "Bearer a2"
	})
	if p.asked() != 2 {
		t.Errorf("the endpoint was asked %d times", p.asked())
	}
}

// TestAnEndpointThatFails: the old token is used while it has life, then calls are
// refused, the endpoint is not asked by each of them, and all goes on by itself.
func TestAnEndpointThatFails(t *testing.T) {
	p := newIDP(t)
	b := connected(t, openStore(t, t.TempDir()), p)
	b.mustSend(t, p, "a1")
	broken := func(w http.ResponseWriter) bool { w.WriteHeader(503); return true }
	p.set(func() { p.before = broken })
	b.clock.Advance(3599 * time.Second)
	for range 50 {
		b.mustSend(t, p, "a1")
	}
	if p.asked() != 2 {
		t.Errorf("asked %d times for 50 calls within a second", p.asked()-1)
	}
	b.clock.Advance(time.Second)
	for range 50 {
		if got, err := b.sends(t.Context(), p); !errors.Is(err, vault.ErrRenewal) || errors.Is(err, vault.ErrReconnect) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if p.asked() != 3 {
		t.Errorf("asked %d times for 50 calls", p.asked()-2)
	}
	for _, pause := range []time.Duration{2, 4, 8, 16, 30, 30} { // which it doubles
		b.clock.Advance(pause*time.Second - 1)
		before := p.asked()
		_, _ = b.sends(t.Context(), p)
		if p.asked() != before {
			t.Errorf("asked within a pause of %d s", pause)
		}
		b.clock.Advance(1)
		_, _ = b.sends(t.Context(), p)
		if p.asked() != before+1 {
			t.Errorf("not asked after a pause of %d s", pause)
		}
	}
	p.set(func() { p.before = nil })
	b.clock.Advance(30 * time.Second)
	b.mustSend(t, p, "a2")
}

// TestARefusalForGood: nobody is asked again until a person has connected the account.
func TestARefusalForGood(t *testing.T) {
	p := newIDP(t)
	s := openStore(t, t.TempDir())
	b := connected(t, s, p)
	b.mustSend(t, p, "a1")
	p.set(func() { p.good = "another" })
	b.clock.Advance(time.Hour)
	for range 3 {
		if got, err := b.sends(t.Context(), p); !errors.Is(err, vault.ErrReconnect) || errors.Is(err, vault.ErrRenewal) {
			t.Fatalf("%q, %v", got, err)
		}
		b.clock.Advance(time.Hour)
	}
	if p.asked() != 2 {
		t.Errorf("asked %d times", p.asked())
	}
	entries, err := vault.Entries(t.Context(), s)
	if err != nil || len(entries) != 2 || entries[0].Reconnect || !entries[1].Reconnect || entries[1].Kind != vault.KindToken {
		t.Errorf("%+v, %v", entries, err)
	}
	if _, err := vault.NewIndex(entries).Open(t.Context(), alice, p.form(true)); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("the index says %v", err)
	}
	p.set(func() { p.good = "by hand" })
	if err := b.vault.SetRefresh(t.Context(), alice, p.form(true), secret.New("by hand"), b.clock.Now()); err != nil {
		t.Fatal(err)
	}
	b.mustSend(t, p, "a2")
}

// unwell is a store that can be made to fail when a credential is put.
type unwell struct {
	*store.Store
	fail atomic.Bool
	puts atomic.Int64
}

func (u *unwell) PutCredential(ctx context.Context, c store.Credential, by store.DataKey) error {
	u.puts.Add(1)
	if u.fail.Load() {
		return errors.New("the disk is full")
	}
	return u.Store.PutCredential(ctx, c, by)
}

// TestANewTokenIsStoredBeforeItIsUsed: while the store fails nobody has it, the store
// is tried again, and the endpoint is not.
func TestANewTokenIsStoredBeforeItIsUsed(t *testing.T) {
	p := newIDP(t)
	s := &unwell{Store: openStore(t, t.TempDir())}
	b := connected(t, s, p)
	b.mustSend(t, p, "a1")
	s.fail.Store(true)
	b.clock.Advance(time.Hour)
	before := s.puts.Load()
	result := make(chan string, 1)
	go func() {
		got, _ := b.sends(t.Context(), p)
		result <- got
	}()
	// The caller may have lost its patience by then, which is of this clock, too.
	later := func(holds func() bool) func() bool {
		return func() bool {
			if holds() {
				return true
			}
			b.clock.Advance(250 * time.Millisecond)
			return false
		}
	}
	for tries := int64(1); tries <= 4; tries++ {
		eventually(t, "the store is tried", later(func() bool { return s.puts.Load() >= before+tries }))
		select {
		case got := <-result:
			if got != "" {
				t.Fatalf("it is used before it is stored: %s", got)
			}
		default:
		}
	}
	s.fail.Store(false)
	eventually(t, "it is stored", later(func() bool {
		rows, err := s.Credentials(t.Context())
		return err == nil && rows[len(rows)-1].Version == 3
	}))
	b.mustSend(t, p, "a2")
	if p.asked() != 2 {
		t.Errorf("the endpoint was asked %d times", p.asked()-1)
	}
	if fresh := newBank(t, s, b.clock); true {
		fresh.mustSend(t, p, "a2")
	}
}

// TestNobodyAsksWhileATokenWaitsForTheStore: however long that takes, nobody else may
// show the refresh token that was spent for it.
func TestNobodyAsksWhileATokenWaitsForTheStore(t *testing.T) {
	p := newIDP(t)
	s := &unwell{Store: openStore(t, t.TempDir())}
	b := connected(t, s, p)
	b.mustSend(t, p, "a1")
	b.clock.Advance(time.Hour)
	s.fail.Store(true)
	ctx, hangUp := context.WithCancel(t.Context())
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = b.sends(ctx, p)
	}()
	eventually(t, "the store is tried", func() bool { return s.puts.Load() > 3 })
	hangUp()
	<-called // so that the turn alone waits for the clock
	for waited := range 120 {
		asleep(t, b.clock, 1)
		now := b.clock.Now()
		if err := s.ClaimRenewal(t.Context(), "mail", "alice", "another", now, now.Add(time.Minute)); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("after %d s another may ask: %v", waited, err)
		}
		b.clock.Advance(time.Second)
	}
	asleep(t, b.clock, 1)
	s.fail.Store(false)
	b.clock.Advance(20 * time.Second) // its pause is over
	b.mustSend(t, p, "a2")
	if p.asked() != 2 {
		t.Errorf("the endpoint was asked %d times", p.asked())
	}
}

// TestAnAccountConnectedMeanwhile counts, and not what was asked for before.
func TestAnAccountConnectedMeanwhile(t *testing.T) {
	for _, refused := range []bool{false, true} {
		p, folder := newIDP(t), t.TempDir()
		b := connected(t, openStore(t, folder), p)
		operator := load(t, openStore(t, folder), "0")
		b.mustSend(t, p, "a1")
		b.clock.Advance(time.Hour)
		p.set(func() {
			p.before = func(w http.ResponseWriter) bool {
				p.before = func(http.ResponseWriter) bool {
					p.good, p.before = "by hand", nil
					return false
				}
				if err := operator.SetRefresh(t.Context(), alice, p.form(true), secret.New("by hand"), noon); err != nil {
					t.Error(err)
				}
				if refused {
					w.WriteHeader(400)
					_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
				}
				return refused
			}
		})
		// One call, which waits for what there is now.
		got, err := b.sends(t.Context(), p)
		if err != nil || !strings.HasPrefix(got, "Bearer a") || got == "Bearer a1" || p.asked() != 3 {
			t.Errorf("refused %v: %q, %v, asked %d times", refused, got, err, p.asked())
		}
	}
}

// TestAClientsOwnToken needs nothing stored but the client's secret.
func TestAClientsOwnToken(t *testing.T) {
	p := newIDP(t)
	b := newBank(t, openStore(t, t.TempDir()), clockwork.NewFakeClockAt(noon))
	form := p.form(false)
	form.OAuth2.OfItself = true
	ref := vault.Ref{Service: "mail", User: "whoever"}
	if _, err := b.Open(t.Context(), ref, form); !errors.Is(err, vault.ErrMissing) || p.asked() != 0 {
		t.Errorf("without its secret: %v", err)
	}
	if err := b.vault.SetClient(t.Context(), "mail", form.OAuth2, secret.New("client-secret"), noon); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Minute)
	for i, want := range []string{"Bearer a1", "Bearer a1", "Bearer a2"} {
		if i == 2 {
			b.clock.Advance(time.Hour)
		}
		c, err := b.Open(t.Context(), ref, form)
		r := &http.Request{URL: mustURL(t, "https://api.example")}
		if err != nil || c.Apply(r) != nil || r.Header.Get("Authorization") != want {
			t.Errorf("%d: %q, %v", i, r.Header.Get("Authorization"), err)
		}
	}
}

// TestTokensGoToTheirHosts: an access token to the service, a client's secret and a
// refresh token to the endpoint, whatever the registry says later.
func TestTokensGoToTheirHosts(t *testing.T) {
	p := newIDP(t)
	b := connected(t, openStore(t, t.TempDir()), p)
	form := p.form(true)
	form.Host = "evil.example"
	if _, err := b.Open(t.Context(), alice, form); !errors.Is(err, vault.ErrHost) {
		t.Errorf("to another service: %v", err)
	}
	form = p.form(true)
	form.OAuth2.TokenURL = strings.Replace(form.OAuth2.TokenURL, "127.0.0.1", "localhost", 1)
	if _, err := b.Open(t.Context(), alice, form); !errors.Is(err, vault.ErrHost) {
		t.Errorf("to another endpoint: %v", err)
	}
	if err := b.vault.SetRefresh(t.Context(), alice, form, secret.New("r0"), noon); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(t.Context(), alice, form); !errors.Is(err, vault.ErrHost) {
		t.Errorf("the client's secret to another endpoint: %v", err)
	}
	if p.asked() != 0 {
		t.Errorf("it was asked %d times", p.asked())
	}
}

// TestARefreshTokenGoesToItsHostAlone: a public client has no secret that would be held
// back in its place.
func TestARefreshTokenGoesToItsHostAlone(t *testing.T) {
	p := newIDP(t)
	b := newBank(t, openStore(t, t.TempDir()), clockwork.NewFakeClockAt(noon))
	form := p.form(true)
	form.OAuth2.Auth = oauth.AuthNone
	if err := b.vault.SetRefresh(t.Context(), alice, form, secret.New("r0"), noon); err != nil {
		t.Fatal(err)
	}
	moved := p.form(true)
	moved.OAuth2.Auth = oauth.AuthNone
	moved.OAuth2.TokenURL = strings.Replace(moved.OAuth2.TokenURL, "127.0.0.1", "localhost", 1)
	if _, err := b.Open(t.Context(), alice, moved); !errors.Is(err, vault.ErrHost) || !strings.Contains(err.Error(), "came from 127.0.0.1 and not from localhost; connect the account again") {
		t.Errorf("to another endpoint: %v", err)
	}
	if p.asked() != 0 {
		t.Errorf("the other endpoint was asked %d times", p.asked())
	}
	p.set(func() {
		p.before = func(w http.ResponseWriter) bool {
			_, _ = io.WriteString(w, `{"access_token":"a1","refresh_token":"r1","token_type":"Bearer","expires_in":3600}`)
			return true
		}
	})
	if _, err := b.Open(t.Context(), alice, form); err != nil || p.asked() != 1 {
		t.Errorf("to its own: %v, asked %d times", err, p.asked())
	}
	if _, err := b.Open(t.Context(), alice, moved); !errors.Is(err, vault.ErrHost) {
		t.Errorf("with an access token that is good: %v", err)
	}
}

func TestNothingOfATokenIsLogged(t *testing.T) {
	p := newIDP(t)
	b := connected(t, openStore(t, t.TempDir()), p)
	p.set(func() {
		p.before = func(w http.ResponseWriter) bool {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_request","error_description":"r0 of client-secret"}`)
			return true
		}
	})
	_, err := b.sends(t.Context(), p)
	b.Close()
	if said := fmt.Sprint(err, b.log.String()); !strings.Contains(said, "invalid_request") || strings.Contains(said, "r0") || strings.Contains(said, "client-secret") {
		t.Errorf("it says %s", said)
	}
}

// TestACallerThatHangsUp does not end the renewal, which the endpoint has answered.
func TestACallerThatHangsUp(t *testing.T) {
	p := newIDP(t)
	b := connected(t, openStore(t, t.TempDir()), p)
	ctx, hangUp := context.WithCancel(t.Context())
	p.set(func() { p.before = func(http.ResponseWriter) bool { hangUp(); return false } })
	_, err := b.sends(ctx, p)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	b.Close() // waits for it
	b.mustSend(t, p, "a1")
	if p.asked() != 1 {
		t.Errorf("asked %d times", p.asked())
	}
}

// TestKilledBetweenRenewalAndStore: another process, killed when the endpoint had
// given a token that it had not stored, costs one more request, once its time is over,
// and not one before.
func TestKilledBetweenRenewalAndStore(t *testing.T) {
	if folder := os.Getenv("VAULT_TEST_KILLED_IN"); folder != "" {
		s, err := store.Open(t.Context(), folder)
		if err != nil {
			t.Fatal(err)
		}
		p := &idp{Server: &httptest.Server{URL: os.Getenv("VAULT_TEST_ENDPOINT")}}
		b := newBank(t, s, clockwork.NewFakeClockAt(noon.Add(time.Hour)))
		_, err = b.sends(t.Context(), p)
		t.Fatalf("still alive: %v", err)
	}
	p, folder := newIDP(t), t.TempDir()
	b := connected(t, openStore(t, folder), p)
	b.mustSend(t, p, "a1")
	b.clock.Advance(time.Hour)
	child := again(t, "VAULT_TEST_KILLED_IN="+folder, "VAULT_TEST_ENDPOINT="+p.URL)
	p.set(func() {
		p.before = func(http.ResponseWriter) bool {
			p.before = nil
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = child.Wait() // dead, and its request is still to be answered
			p.n++            // as it is, to nobody: the refresh token is not taken twice by those that wait a while
			return true
		}
	})
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child is dead", func() bool { return p.asked() == 2 })
	result := make(chan error, 1)
	go func() {
		_, err := b.sends(t.Context(), p)
		result <- err
	}()
	for waited := time.Duration(0); waited < 24*time.Second; waited += 250 * time.Millisecond {
		asleep(t, b.clock, 2) // its next look, and the caller's patience
		b.clock.Advance(250 * time.Millisecond)
	}
	if p.asked() != 2 {
		t.Errorf("asked while the claim of the dead one stood")
	}
	for len(result) == 0 {
		b.clock.Advance(250 * time.Millisecond)
		time.Sleep(time.Millisecond)
	}
	if err := <-result; err != nil || p.asked() != 3 {
		t.Errorf("%v, asked %d times", err, p.asked())
	}
}
