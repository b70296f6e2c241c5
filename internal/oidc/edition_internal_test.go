package oidc

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// TestKeysThatCameMeanwhile: who looked at the keys just before newer ones came is
// sent to look again, and not told that nothing newer is to be had.
func TestKeysThatCameMeanwhile(t *testing.T) {
	var issuer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			_, _ = w.Write([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"new","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
			return
		}
		_, _ = w.Write([]byte(`{"issuer":"` + issuer + `","jwks_uri":"` + issuer + `/keys"}`))
	}))
	defer server.Close()
	issuer = server.URL
	clock := clockwork.NewFakeClock()
	s := newKeySet(issuer, server.Client(), clock, slog.New(slog.DiscardHandler))
	late, edition := s.current() // who has begun a fetch by asking
	s.mu.Lock()
	under := s.under
	s.mu.Unlock()
	if len(late) != 0 || under == nil {
		t.Fatalf("%d keys at first, %v", len(late), under)
	}
	select {
	case <-under:
	case <-time.After(20 * time.Second):
		t.Fatal("the fetch does not end")
	}
	newer := s.newer("new", edition)
	if newer == nil {
		t.Fatal("nothing newer is to be had, for whoever has not seen what is there")
	}
	<-newer // without a wait
	if keys := s.settled("new"); !has(keys, "new") {
		t.Errorf("%d keys", len(keys))
	}
	if _, edition = s.current(); s.newer("new", edition) != nil {
		t.Error("who has seen the newest keys, and has one of that id, waits for others")
	}
	if s.newer("old", edition) != nil {
		t.Error("another fetch within the cooldown")
	}
}
