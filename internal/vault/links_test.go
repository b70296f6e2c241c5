package vault_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// linked is a bank whose mail service hands out tokens for codes, and links to it.
func linked(t *testing.T) (*bank, *vault.Links, *idp, *store.Store) {
	t.Helper()
	p, s := newIDP(t), openStore(t, t.TempDir())
	b := connected(t, s, p)
	return b, vault.NewLinks(s, b.Tokens, kekOf(t, "0")), p, s
}

func newLink(t *testing.T, s vault.LinkStore, ref vault.Ref, lasts time.Duration) string {
	t.Helper()
	link, err := vault.NewLink(t.Context(), s, ref, noon, noon.Add(lasts))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// TestStateAndVerifierAreApart: what goes over the browser tells nothing of what is kept
// for the code (RFC 7636 section 7.1); both are of this service, link and beginning, and
// of this gateway's key, alone.
func TestStateAndVerifierAreApart(t *testing.T) {
	s := openStore(t, t.TempDir())
	b := newBank(t, s, clockwork.NewFakeClockAt(noon))
	l, others := vault.NewLinks(s, b.Tokens, kekOf(t, "0")), vault.NewLinks(s, b.Tokens, kekOf(t, "1"))
	links := map[string]string{"mail": newLink(t, s, alice, time.Hour), "other": newLink(t, s, vault.Ref{Service: "other", User: "alice"}, time.Hour)}
	seen := map[string]string{}
	note := func(what, text string) {
		t.Helper()
		if len(text) != 43 { // 32 bytes; the least that RFC 7636 section 4.1 allows
			t.Errorf("%s is %q", what, text)
		}
		if before, has := seen[text]; has {
			t.Errorf("%s is %s", what, before)
		}
		seen[text] = what
	}
	for service, link := range links {
		for i := range 3 {
			cookie, a, err := l.Begin(t.Context(), service, link)
			if err != nil {
				t.Fatal(err)
			}
			note(fmt.Sprint("the state of ", service, " ", i), a.State)
			note(fmt.Sprint("the verifier of ", service, " ", i), a.Verifier)
			another := "other"
			if service == another {
				another = "mail"
			}
			for what, returned := range map[string]bool{
				"with another's state":      l.Returned(service, cookie, string(a.State[0]^1)+a.State[1:]),
				"without":                   l.Returned(service, cookie, ""),
				"with the verifier":         l.Returned(service, cookie, a.Verifier),
				"to another service":        l.Returned(another, cookie, a.State),
				"to another gateway":        others.Returned(service, cookie, a.State),
				"with another beginning":    l.Returned(service, link+".another", a.State),
				"with another link":         l.Returned(service, links[another]+cookie[len(link):], a.State),
				"with the border elsewhere": l.Returned(service, cookie[:len(link)-1]+"."+cookie[len(link)-1:len(link)]+cookie[len(link)+1:], a.State),
			} {
				if returned {
					t.Errorf("%s %d: one who came back %s is taken for who began", service, i, what)
				}
			}
			if !l.Returned(service, cookie, a.State) {
				t.Errorf("%s %d: who began is not known again", service, i)
			}
		}
	}
}

// TestALinkIsForItsServiceOnceAndForItsTime: to begin uses nothing up; to finish does,
// for one of many who do so at once, even where it fails.
func TestALinkIsForItsServiceOnceAndForItsTime(t *testing.T) {
	b, l, p, s := linked(t)
	form := p.form(true)
	p.set(func() {
		p.before = func(w http.ResponseWriter) bool {
			_, _ = io.WriteString(w, `{"access_token":"by-code","refresh_token":"r9","token_type":"Bearer","expires_in":3600}`)
			return true
		}
	})
	link, before := newLink(t, s, alice, time.Hour), p.asked()
	for what, c := range map[string]struct{ service, link string }{
		"another service's": {"other", link}, "one that nobody made": {"mail", "AAAA"}, "none": {"mail", ""},
	} {
		if cookie, a, err := l.Begin(t.Context(), c.service, c.link); !errors.Is(err, vault.ErrLink) || cookie != "" || a.State != "" {
			t.Errorf("%s: %q, %v", what, cookie, err)
		}
		if _, err := l.Finish(t.Context(), "mail", "AAAA.x", "code", "https://gw.example", form); !errors.Is(err, vault.ErrLink) {
			t.Errorf("finished with one that nobody made: %v", err)
		}
	}
	var cookie string
	for range 3 {
		var err error
		if cookie, _, err = l.Begin(t.Context(), "mail", link); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	good := 0
	for range 8 {
		wg.Go(func() {
			ref, err := l.Finish(t.Context(), "mail", cookie, "code", "https://gw.example", form)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && ref == alice:
				good++
			case !errors.Is(err, vault.ErrLink):
				t.Errorf("%v, %v", ref, err)
			}
		})
	}
	wg.Wait()
	if good != 1 || p.asked() != before+1 {
		t.Errorf("%d of 8 finished, and the endpoint was asked %d times", good, p.asked()-before)
	}
	b.mustSend(t, p, "by-code")
	if _, _, err := l.Begin(t.Context(), "mail", link); !errors.Is(err, vault.ErrLink) {
		t.Errorf("begun again: %v", err)
	}

	// At the wrong service it is spent, and nobody's account is another's.
	other := newLink(t, s, vault.Ref{Service: "other", User: "bob"}, time.Hour)
	if ref, err := l.Finish(t.Context(), "mail", other+".x", "code", "https://gw.example", form); !errors.Is(err, vault.ErrLink) || ref != (vault.Ref{}) {
		t.Errorf("one of another service: %v, %v", ref, err)
	}
	if _, _, err := l.Begin(t.Context(), "other", other); !errors.Is(err, vault.ErrLink) {
		t.Errorf("it is good still: %v", err)
	}

	short := newLink(t, s, alice, time.Minute)
	cookie, _, err := l.Begin(t.Context(), "mail", short)
	if err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Minute)
	if _, _, err := l.Begin(t.Context(), "mail", short); !errors.Is(err, vault.ErrLink) {
		t.Errorf("begun when its time was over: %v", err)
	}
	if _, err := l.Finish(t.Context(), "mail", cookie, "code", "https://gw.example", form); !errors.Is(err, vault.ErrLink) {
		t.Errorf("finished when its time was over: %v", err)
	}
	if p.asked() != before+1 {
		t.Errorf("the endpoint was asked %d times in all", p.asked()-before)
	}
}

// TestARefreshTokenThatIsNotRotated is kept: a server that answers without one means
// that which was shown (RFC 6749 section 6).
func TestARefreshTokenThatIsNotRotated(t *testing.T) {
	p, s := newIDP(t), openStore(t, t.TempDir())
	b := connected(t, s, p)
	n := 0
	var shown []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.FormValue("refresh_token"))
		n++
		_, _ = fmt.Fprintf(w, `{"access_token":"a%d","token_type":"Bearer","expires_in":3600}`, n)
	}))
	defer server.Close()
	p.URL = server.URL
	for _, want := range []string{"a1", "a2", "a3"} {
		b.mustSend(t, p, want)
		b.clock.Advance(time.Hour)
	}
	if fmt.Sprint(shown) != "[r0 r0 r0]" {
		t.Errorf("the endpoint was shown %q", shown)
	}
}

// TestAClientThatIsRefusedIsAskedAgain: that its own token is not granted is nothing
// that a person could connect anew.
func TestAClientThatIsRefusedIsAskedAgain(t *testing.T) {
	p, s := newIDP(t), openStore(t, t.TempDir())
	b := newBank(t, s, clockwork.NewFakeClockAt(noon))
	form := p.form(false)
	form.OAuth2.OfItself = true
	if err := b.vault.SetClient(t.Context(), "mail", form.OAuth2, secret.New("client-secret"), noon); err != nil {
		t.Fatal(err)
	}
	open := func() error {
		_, err := b.Open(t.Context(), vault.Ref{Service: "mail"}, form)
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Hour)
	p.set(func() {
		p.before = func(w http.ResponseWriter) bool {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
			return true
		}
	})
	if err := open(); !errors.Is(err, vault.ErrRenewal) || errors.Is(err, vault.ErrReconnect) {
		t.Errorf("refused: %v", err)
	}
	p.set(func() { p.before = nil })
	b.clock.Advance(time.Minute)
	if err := open(); err != nil {
		t.Errorf("granted again: %v", err)
	}
}
