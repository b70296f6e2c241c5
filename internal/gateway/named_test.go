package gateway_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// named is what an answer says of a record of the ledger.
func named(records []receipts.Record, i int) string {
	e := entryOf(records, i)
	text := fmt.Sprintf("id=%q", records[i].ID)
	if e.Tree != "" {
		text += fmt.Sprintf(", log=%q, index=%d", e.Tree, e.TreeIndex)
	}
	return text + ", leaf=:" + base64.StdEncoding.EncodeToString(e.Leaf[:]) + ":"
}

// TestAnswerNamesItsRecord: the header tells of the record that was on disk when it
// went out, the refusal or the intent, by its place in its tenant's tree; where
// there is no intent, the outcome if it was there before. A stranger is told no
// place, which would tell of other strangers.
func TestAnswerNamesItsRecord(t *testing.T) {
	const ok, far = `{"service":"tools","action":"get","params":{"id":"1"}}`, `{"service":"tools","action":"get","params":{"id":"far"}}`
	stream := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "far") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		hello(w, r)
	}
	for _, c := range []struct {
		name, intent, body string
		record             int // which the header names, -1: none yet
	}{
		{"admitted", "always", ok, 0},
		{"a stream", "always", far, 0},
		{"without an intent", "never", ok, 0},
		{"a stream without an intent", "never", far, -1},
		{"a refusal", "always", `{"service":"payroll","action":"read"}`, 0},
		{"bad params", "always", `{"service":"tools","action":"get","params":{}}`, 0},
	} {
		w := setup{settings: func(s *config.Settings) { s.ReceiptIntent = c.intent }}.world(t, stream, everything("k"))
		for round := range 2 {
			before := len(w.ledger.all())
			got := w.act("k", c.body)
			all := w.ledger.all()
			want := fmt.Sprintf("id=%q", all[before].ID)
			if c.record >= 0 {
				want = named(all, before+c.record)
			}
			if v := got.header.Values("Agentgate-Receipt"); len(v) != 1 || v[0] != want {
				t.Errorf("%s, round %d: %q, want %q", c.name, round, v, want)
			}
			d, err := httpsfv.UnmarshalDictionary(got.header.Values("Agentgate-Receipt"))
			if err != nil {
				t.Fatal(err)
			}
			if leaf, there := d.Get("leaf"); there {
				if b, isBytes := leaf.(httpsfv.Item).Value.([]byte); !isBytes || len(b) != 32 {
					t.Errorf("%s: leaf %v", c.name, leaf)
				}
			}
		}
	}
	w := newWorld(t, hello, everything("k"))
	w.keys["stranger"] = "agw_nobody"
	for _, path := range []string{"/v1/act", "/v1/whoami"} {
		r := w.request(t.Context(), "stranger", ok)
		if path == "/v1/whoami" {
			r.Method, r.Body, r.URL.Path, r.ContentLength = "GET", nil, path, 0
		}
		got := w.do(r)
		all := w.ledger.all()
		if v := got.header.Get("Agentgate-Receipt"); got.status != 401 || v != named(all, len(all)-1) || strings.Contains(v, "index") {
			t.Errorf("a stranger at %s: %d %q", path, got.status, v)
		}
	}
}

// TestOutcomeInATrailer: a client that takes trailers is told of the outcome, which
// is on disk by then, over either version of HTTP; one that does not is sent none,
// and an answer without a body has none.
func TestOutcomeInATrailer(t *testing.T) {
	answers := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "none"):
			w.WriteHeader(http.StatusNoContent)
		case strings.HasSuffix(r.URL.Path, "long"):
			_, _ = io.WriteString(w, strings.Repeat("long ", 20_000))
		case strings.HasSuffix(r.URL.Path, "stream"):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "data: 2\n\n")
		default:
			hello(w, r)
		}
	}
	w := newWorld(t, answers, tireless("k"))
	address, pool := overHTTP2(t, w)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com"}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, id := range []string{"short", "long", "stream", "none"} {
		for _, te := range []string{"", "trailers", "gzip, trailers"} {
			for _, h2 := range []bool{false, true} {
				before := len(w.ledger.all())
				r := w.request(t.Context(), "k", `{"service":"tools","action":"get","params":{"id":`+strconv.Quote(id)+`}}`)
				c := w.server.Client()
				if h2 {
					c, r.URL.Scheme, r.URL.Host = client, "https", address
				}
				if te != "" && h2 {
					te = "trailers" // RFC 9113 allows nothing else
				}
				if te != "" {
					r.Header.Set("TE", te)
				}
				res, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.ProtoMajor != map[bool]int{true: 2, false: 1}[h2] {
					t.Fatalf("%s: %v %s", id, err, res.Proto)
				}
				all := w.ledger.all()
				if v := res.Header.Values("Agentgate-Receipt"); len(v) != 1 || v[0] != named(all, before) {
					t.Errorf("%s, TE %q, %s: header %q", id, te, res.Proto, v)
				}
				trailer := res.Trailer.Values("Agentgate-Receipt")
				if te == "" || id == "none" {
					if len(trailer) != 0 {
						t.Errorf("%s, TE %q, %s: trailer %q", id, te, res.Proto, trailer)
					}
					continue
				}
				if len(trailer) != 1 || trailer[0] != named(all, before+1) || all[before+1].Kind != receipts.KindOutcome || len(all) != before+2 {
					t.Errorf("%s, TE %q, %s: trailer %q", id, te, res.Proto, trailer)
				}
				if id == "long" && len(body) != 100_000 {
					t.Errorf("%d bytes", len(body))
				}
			}
		}
	}
}
