package gateway_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestRedirects: one that stays on the service is the agent's to follow, as it
// was sent; one that some agent could follow off it is not passed on.
func TestRedirects(t *testing.T) {
	var status int
	var locations []string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		for _, l := range locations {
			rw.Header().Add("Location", strings.ReplaceAll(l, "HOST", r.Host))
		}
		rw.WriteHeader(status)
	}, everything("k"))
	client := w.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, c := range []struct {
		away bool
		to   []string
	}{
		{false, nil},
		{false, []string{"/ok?a=b#c"}},
		{false, []string{"elsewhere"}},
		{false, []string{"http://HOST/ok"}},
		{false, []string{"//HOST/ok"}},
		{false, []string{""}},
		{true, []string{"http://evil.example/"}},
		{true, []string{"//evil.example/"}},
		{true, []string{"https://HOST/"}},
		{true, []string{"http://HOST:1/"}},
		{true, []string{"http://user:password@HOST/"}},
		{true, []string{"http://HOST@evil.example/"}},
		{true, []string{"///evil.example/"}},
		{true, []string{"////evil.example/"}},
		{true, []string{"http:///evil.example/"}},
		{true, []string{`/\evil.example`}},
		{true, []string{`\/evil.example`}},
		{true, []string{"/\tevil.example"}},
		{true, []string{"javascript:alert(1)"}},
		{true, []string{"http://[::1"}},
		{true, []string{"/ok", "http://evil.example/"}},
		{true, []string{"", "http://evil.example/"}},
	} {
		for _, status = range []int{301, 302, 303, 307, 308} {
			locations = c.to
			got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)
			if c.away {
				if got.status != 502 || got.code != "upstream_redirect" || got.header.Get("Location") != "" {
					t.Errorf("%d %q: %d %s, Location %q", status, c.to, got.status, got.code, got.header["Location"])
				}
				continue
			}
			if got.status != status || len(got.header["Location"]) != len(c.to) {
				t.Errorf("%d %q: %d %s, Location %q", status, c.to, got.status, got.code, got.header["Location"])
			}
			w.clock.Advance(1e9)
		}
		w.clock.Advance(10e9)
	}
	// Nobody follows the Location of what is no redirect.
	for _, status = range []int{200, 201, 304} {
		locations = []string{"http://evil.example/"}
		if got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.status != status {
			t.Errorf("%s: %d %s", strconv.Itoa(status), got.status, got.body)
		}
	}
}
