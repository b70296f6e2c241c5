package oidc_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/oidc/oidctest"
)

// TestRotation: the issuer's key changes while tokens come. None of them is
// refused, and the keys are fetched once.
func TestRotation(t *testing.T) {
	w := newWorld(t, open)
	w.clock.Advance(31 * time.Second)
	before := w.idp.Fetches()
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range 200 {
		if i == 100 {
			w.idp.Rotate()
		}
		token := w.idp.Token(w.clock.Now(), fmt.Sprint("caller-", i), nil)
		wg.Go(func() {
			if w.ask(token) != nil {
				refused.Add(1)
			}
		})
		if i == 99 {
			wg.Wait() // those of the key that goes have been read with it
		}
	}
	wg.Wait()
	if refused.Load() != 0 || w.idp.Fetches() != before+1 {
		t.Errorf("%d valid tokens refused, %d fetches", refused.Load(), w.idp.Fetches()-before)
	}
}

// TestUnknownKeysDoNotFloodTheIssuer: a thousand tokens with as many key ids cost
// the issuer one fetch in 30 s, and valid tokens pass all the while.
func TestUnknownKeysDoNotFloodTheIssuer(t *testing.T) {
	w := newWorld(t, open)
	w.clock.Advance(31 * time.Second)
	before := w.idp.Fetches()
	stranger := oidctest.NewSigner(t, "")
	flood := func() {
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				if w.ask(stranger.Sign(map[string]any{"kid": rand.Text()}, w.idp.Claims(w.clock.Now(), "x", nil))) == nil {
					t.Error("a stranger's token is taken")
				}
			})
			if i%100 == 0 {
				if err := w.ask(w.idp.Token(w.clock.Now(), fmt.Sprint("caller-", i), nil)); err != nil {
					t.Error(err)
				}
			}
		}
		wg.Wait()
	}
	flood()
	w.clock.Advance(29 * time.Second)
	flood()
	if n := w.idp.Fetches() - before; n != 1 {
		t.Errorf("%d fetches in 30 s", n)
	}
	w.clock.Advance(time.Second)
	flood()
	if n := w.idp.Fetches() - before; n != 2 {
		t.Errorf("%d fetches in 31 s", n)
	}
}

// TestAKeyIdThatWasNotThereIsNotAskedForAgain: for a minute, unless it comes along
// with another.
func TestAKeyIdThatWasNotThereIsNotAskedForAgain(t *testing.T) {
	w := newWorld(t, open)
	later := oidctest.NewSigner(t, "later")
	token := func() string { return later.Sign(nil, w.idp.Claims(w.clock.Now(), "x", nil)) }
	for _, c := range []struct {
		after   time.Duration
		fetches int
	}{{31 * time.Second, 1}, {31 * time.Second, 0}, {28 * time.Second, 0}, {2 * time.Second, 1}} {
		w.clock.Advance(c.after)
		before := w.idp.Fetches()
		if w.ask(token()) == nil || w.idp.Fetches()-before != c.fetches {
			t.Errorf("%s later: %d fetches, want %d", c.after, w.idp.Fetches()-before, c.fetches)
		}
	}
}

// TestTheIssuerIsDown: known keys are good for 24 h, a new one is not found, and
// there is one try in 30 s. When the issuer is back all is as before.
func TestTheIssuerIsDown(t *testing.T) {
	w := newWorld(t, open)
	old := w.idp.Signer()
	w.idp.Answer(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	w.idp.Describe(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	fresh := w.idp.Rotate()
	tries := func() int { return w.idp.Fetches() + w.idp.Asked() }
	before := tries()
	for hour := range 24 {
		w.clock.Advance(time.Hour - time.Second)
		if hour == 0 {
			w.clock.Advance(time.Second)
		}
		if hour == 23 {
			break
		}
		if err := w.ask(old.Sign(nil, w.idp.Claims(w.clock.Now(), fmt.Sprint("caller-", hour), nil))); err != nil {
			t.Fatalf("after %d h: %v", hour+1, err)
		}
		if w.ask(fresh.Sign(nil, w.idp.Claims(w.clock.Now(), "x", nil))) == nil {
			t.Fatal("a key that was never had is known")
		}
	}
	w.eventually("one try an hour", func() bool { return tries()-before == 23 })
	if n := strings.Count(w.logged.String(), "cannot be had"); n != 1 {
		t.Errorf("the log says so %d times: %s", n, w.logged)
	}
	w.clock.Advance(time.Hour)
	err := w.ask(old.Sign(nil, w.idp.Claims(w.clock.Now(), "late", nil)))
	if err == nil || !strings.Contains(err.Error(), "could not be had") {
		t.Errorf("after a day: %v", err)
	}
	w.idp.Answer(nil)
	w.idp.Describe(nil)
	w.clock.Advance(31 * time.Second)
	w.eventually("it is back", func() bool { return w.ask(fresh.Sign(nil, w.idp.Claims(w.clock.Now(), "x", nil))) == nil })
}

// TestAKeyThatIsTakenBack is taken no more, though it is known.
func TestAKeyThatIsTakenBack(t *testing.T) {
	w := newWorld(t, open)
	old := w.idp.Signer()
	w.idp.Rotate()
	token := func() string { return old.Sign(nil, w.idp.Claims(w.clock.Now(), rand.Text(), nil)) }
	w.clock.Advance(5*time.Minute - time.Second)
	if err := w.ask(token()); err != nil {
		t.Error(err)
	}
	w.clock.Advance(time.Second)
	w.eventually("it is refused", func() bool { return w.ask(token()) != nil })
}

// TestWhoWaitsMayLeave: a caller that hangs up waits for no issuer.
func TestWhoWaitsMayLeave(t *testing.T) {
	w := newWorld(t, open)
	w.clock.Advance(31 * time.Second)
	hold, came := make(chan struct{}), make(chan struct{}, 1)
	defer close(hold)
	w.idp.Answer(func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-hold })
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-came; cancel() }()
	if _, err := w.tokens.Authenticate(ctx, oidctest.NewSigner(t, "new").Sign(nil, w.idp.Claims(w.clock.Now(), "x", nil)), w.clock.Now()); err == nil {
		t.Error("taken")
	}
	// And who has a key that is known waits for nobody.
	if err := w.ask(w.idp.Token(w.clock.Now(), "y", nil)); err != nil {
		t.Error(err)
	}
}

// TestAnswersOfAnIssuer: what an issuer says of itself and its keys is bounded, and
// nobody else may say it.
func TestAnswersOfAnIssuer(t *testing.T) {
	body := func(status int, text string, header ...string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				rw.Header().Set(header[i], header[i+1])
			}
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(text))
		}
	}
	for _, c := range []struct {
		name           string
		keys, describe func(p *oidctest.IdP) http.HandlerFunc
		good           bool
	}{
		{name: "as it should be", good: true},
		{name: "a megabyte before the keys", good: true, keys: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, strings.Repeat(" ", 1<<20-len(p.Keys()))+string(p.Keys()))
		}},
		{name: "and a byte", keys: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, strings.Repeat(" ", 1<<20+1-len(p.Keys()))+string(p.Keys()))
		}},
		{name: "without end", keys: func(*oidctest.IdP) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := rw.Write(make([]byte, 1<<16)); err != nil {
						return
					}
				}
			}
		}},
		{name: "a redirect to the keys", keys: func(p *oidctest.IdP) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "" {
					http.Redirect(rw, r, p.URL+"/keys?again", http.StatusFound)
					return
				}
				_, _ = rw.Write(p.Keys())
			}
		}},
		{name: "keys with status 404", keys: func(p *oidctest.IdP) http.HandlerFunc { return body(404, string(p.Keys())) }},
		{name: "HTML", keys: func(*oidctest.IdP) http.HandlerFunc { return body(200, "<html>") }},
		{name: "no keys", keys: func(*oidctest.IdP) http.HandlerFunc { return body(200, `{"keys":[]}`) }},
		{name: "keys of use enc", keys: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, strings.Replace(string(p.Keys()), `"use":"sig"`, `"use":"enc"`, 1))
		}},
		{name: "keys for signing alone", keys: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, strings.Replace(string(p.Keys()), `"use":"sig"`, `"key_ops":["sign"]`, 1))
		}},
		{name: "keys for verifying", good: true, keys: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, strings.Replace(string(p.Keys()), `"use":"sig"`, `"key_ops":["verify"]`, 1))
		}},
		{name: "another key that cannot be read", good: true, keys: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, strings.Replace(string(p.Keys()), `[`, `[{"kty":"XX"},{"kty":"EC","crv":"P-256","x":"","y":""},`, 1))
		}},
		{name: "another's configuration", describe: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, `{"issuer":"`+p.URL+`/","jwks_uri":"`+p.URL+`/keys"}`)
		}},
		{name: "a configuration that says it twice", describe: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, `{"issuer":"https://evil.example","issuer":"`+p.URL+`","jwks_uri":"`+p.URL+`/keys"}`)
		}},
		{name: "keys in a file", describe: func(p *oidctest.IdP) http.HandlerFunc {
			return body(200, `{"issuer":"`+p.URL+`","jwks_uri":"file:///etc/passwd"}`)
		}},
		{name: "no keys' address", describe: func(p *oidctest.IdP) http.HandlerFunc { return body(200, `{"issuer":"`+p.URL+`"}`) }},
		{name: "a redirect of the configuration", describe: func(p *oidctest.IdP) http.HandlerFunc {
			return body(302, "", "Location", p.URL+"/.well-known/openid-configuration")
		}},
	} {
		w := &world{t: t, idp: oidctest.New(t), clock: newClock(), logged: new(logged)}
		if c.keys != nil {
			w.idp.Answer(c.keys(w.idp))
		}
		if c.describe != nil {
			w.idp.Describe(c.describe(w.idp))
		}
		w.tokens = w.take(open)
		if err := w.ask(w.idp.Token(noon, "alice", nil)); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
