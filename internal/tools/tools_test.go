package tools_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/tools"
)

func TestService(t *testing.T) {
	s := httptest.NewServer(tools.Handler("tok", clockwork.NewRealClock()))
	defer s.Close()
	for _, c := range []struct {
		token, path string
		status      int
		body        string
		cut         bool
	}{
		{"tok", "/search?q=x", 200, `{"query":"x","results":["the first thing found","the second thing found"]}` + "\n", false},
		{"tok", "/ticks?count=2&every=1", 200, "event: tick\ndata: {\"n\":1}\n\nevent: tick\ndata: {\"n\":2}\n\n", false},
		{"tok", "/fail?status=503", 503, `{"failed":503}` + "\n", false},
		{"tok", "/fail", 200, "half of an ans", true},
		{"agw_x", "/search?q=x", 401, "the tool service wants its own credential\n", false},
	} {
		r, err := http.NewRequest("GET", s.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+c.token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != c.status || string(body) != c.body || (err != nil) != c.cut {
			t.Errorf("%s: %d %q, error %v; want %d %q, cut %v", c.path, res.StatusCode, body, err, c.status, c.body, c.cut)
		}
	}
}
