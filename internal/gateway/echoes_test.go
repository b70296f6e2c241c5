package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"agentgw/internal/secret"
	"agentgw/internal/vault"
)

// canary is a credential that some service repeats.
const canary = "Zx81+kQ0/pLm&Vq45=fT6lKg"

// echoing is a registry with a service for each type of credential.
func echoing() string {
	file := "version: 1\nservices:\n"
	for _, credential := range []string{"bearer", "basic", "header, name: X-Token", "query, name: token"} {
		name, _, _ := strings.Cut(credential, ",")
		file += fmt.Sprintf(`  %s:
    base_url: "%%[1]s"
    allow_private: true
    credential: {type: %s}
    actions: {get: {method: GET, path: "/{how}", params: {how: string, code: "int?"}}, head: {method: HEAD, path: "/{how}", params: {how: string}}}
`, name, credential)
	}
	return file + `  down:
    base_url: "http://127.0.0.1:1"
    allow_private: true
    credential: {type: query, name: token}
    actions: {get: {method: GET, path: /x}}
`
}

// echoWorld is a gateway in front of a service that repeats what it is told.
func echoWorld(t *testing.T, upstream http.HandlerFunc) *world {
	t.Helper()
	kek, err := vault.ParseKEK(strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Load(t.Context(), &shelf{}, kek)
	if err != nil {
		t.Fatal(err)
	}
	for service, text := range map[string]string{"bearer": canary, "basic": "octocat-robot:" + canary, "header": canary, "query": canary, "down": canary} {
		if err := v.Set(t.Context(), vault.Ref{Service: service}, vault.Form{}, secret.New(text), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	return setup{registry: echoing(), vault: v}.world(t, upstream, tireless("k"))
}

// told is all that a request says of the credential, as the service would repeat it.
func toldBy(r *http.Request) []string {
	return []string{
		canary, r.Header.Get("Authorization"), r.Header.Get("X-Token"), r.URL.String(), url.QueryEscape(canary), url.PathEscape(canary),
		base64.StdEncoding.EncodeToString([]byte(canary)), base64.RawURLEncoding.EncodeToString([]byte("key " + canary)),
		base64.StdEncoding.EncodeToString([]byte("x" + canary + "y")), hex.EncodeToString([]byte(canary)),
		canary[:10] + "********", "********" + canary[10:],
	}
}

// shown are the pieces of the credential that may stand nowhere.
func shown() (all []string) {
	for i := 0; i+8 <= len(canary); i++ {
		piece := canary[i : i+8]
		quoted, _ := json.Marshal(piece)
		all = append(all, piece, url.QueryEscape(piece), url.PathEscape(piece), hex.EncodeToString([]byte(piece)), string(quoted[1:len(quoted)-1]))
		for before := range 3 {
			in := base64.RawStdEncoding.EncodeToString([]byte("xxx"[:before] + piece))
			all = append(all, in[before+1:len(in)-1], strings.NewReplacer("+", "-", "/", "_").Replace(in[before+1:len(in)-1]))
		}
	}
	return all
}

func holdsNothing(t *testing.T, what, text string) {
	t.Helper()
	for _, piece := range shown() {
		if at := strings.Index(text, piece); at >= 0 {
			t.Errorf("%s shows %q in %q", what, piece, text[max(0, at-60):min(len(text), at+60)])
			return
		}
	}
}

// TestTheCredentialIsNotRepeated: whatever a service repeats of the credential that
// it was given, in which spelling, wherever in its answer and cut in whatever way,
// the agent reads none of it, and neither does anybody who reads log and receipts.
func TestTheCredentialIsNotRepeated(t *testing.T) {
	ways := map[string]func(w http.ResponseWriter, r *http.Request){
		"declared": func(w http.ResponseWriter, r *http.Request) {
			text := strings.Join(toldBy(r), " ")
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, text)
		},
		"json": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": "no such key", "told": toldBy(r)}})
		},
		"bytes": func(w http.ResponseWriter, r *http.Request) {
			for _, text := range toldBy(r) {
				for i := range len(text) {
					send(w, text[i:i+1])
				}
				send(w, "\n")
			}
		},
		"events": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, text := range toldBy(r) {
				send(w, "data: "+text[:len(text)/2])
				send(w, text[len(text)/2:]+"\n\n")
			}
		},
		"header": func(w http.ResponseWriter, r *http.Request) {
			for i, text := range toldBy(r) {
				w.Header().Add("X-Echo", text)
				w.Header().Set(fmt.Sprintf("X-Echo-%d", i), "was: "+text)
			}
			for _, name := range []string{"Www-Authenticate", "Set-Cookie", "Etag", "Link", "Content-Location", "Authorization", "Server-Timing"} {
				w.Header().Set(name, `Bearer error="`+canary+`"`)
			}
		},
		"location": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/next?token="+url.QueryEscape(canary)+"&again="+canary)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"away": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example/?token="+url.QueryEscape(canary))
			w.WriteHeader(http.StatusFound)
		},
		"trailer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			send(w, "body")
			w.Header().Set("X-Sum", canary)
			w.Header().Set(http.TrailerPrefix+"X-Not-Announced", url.QueryEscape(canary))
		},
		"hints": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css?token="+url.QueryEscape(canary)+">; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			_, _ = io.WriteString(w, "ok")
		},
		"cut": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close") // so that no later call goes there: a HEAD does not see the cut
			w.Header().Set("Content-Length", "1000")
			send(w, "half "+canary)
			panic(http.ErrAbortHandler)
		},
		"hangs": func(w http.ResponseWriter, r *http.Request) {
			c, b, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = b.WriteString("HTTP/1.1 " + canary + " \r\n" + canary + "\r\n\r\n")
				_ = b.Flush()
				_ = c.Close()
			}
		},
		"malformed": func(w http.ResponseWriter, r *http.Request) {
			c, b, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = b.WriteString("HTTP/1.1 200 OK\r\n" + canary + "\r\n\r\n")
				_ = b.Flush()
				_ = c.Close()
			}
		},
	}
	g := echoWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("the service may compress: %q", r.Header.Get("Accept-Encoding"))
		}
		if way := ways[r.URL.Path[1:]]; way != nil {
			way(w, r)
		}
	})
	calls := 0
	for _, service := range []string{"bearer", "basic", "header", "query"} {
		for how := range ways {
			for _, action := range []string{"get", "head"} {
				raw := strings.Replace(g.raw(fmt.Sprintf(`{"service":%q,"action":%q,"params":{"how":%q}}`, service, action, how), "TE: trailers", "Accept-Encoding: gzip, br"), "\r\n", "\r\nConnection: close\r\n", 1)
				p := g.dial()
				p.write(raw)
				got, _ := io.ReadAll(p.c)
				calls++
				holdsNothing(t, fmt.Sprintf("the answer to %s.%s %s", service, action, how), string(got))
				if _, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(got)), nil); err != nil && how != "cut" {
					t.Errorf("%s %s: %v", service, how, err)
				}
				marked := how != "cut" && how != "away" && how != "hangs" && how != "malformed" && (action == "get" || how == "header" || how == "location" || how == "hints")
				if marked != bytes.Contains(got, []byte("********")) && how != "cut" {
					t.Errorf("%s.%s %s: %q", service, action, how, got)
				}
			}
		}
	}
	if res := g.act("k", `{"service":"down","action":"get"}`); res.code != "upstream_unreachable" {
		t.Errorf("%d %s", res.status, res.body)
	} else {
		holdsNothing(t, "the answer of a service that is down", res.body)
	}
	holdsNothing(t, "the log", g.logged.String())
	records, err := json.Marshal(g.ledger.all())
	if err != nil || len(g.ledger.all()) < 2*calls {
		t.Fatal(err, len(g.ledger.all()))
	}
	holdsNothing(t, "the receipts", string(records))
	if !strings.Contains(g.logged.String(), "repeated its credential") || !strings.Contains(g.logged.String(), "malformed HTTP") {
		t.Errorf("the operator is not told: %s", g.logged.String())
	}
}

// TestAnAnswerWithoutTheCredentialIsUntouched: what does not show it comes byte for
// byte, of whatever length and cut, with its length where it has one.
func TestAnAnswerWithoutTheCredentialIsUntouched(t *testing.T) {
	text := make([]byte, 300<<10)
	for i := range text {
		text[i] = canary[i*i%7%len(canary)] ^ byte(i>>9)
	}
	g := echoWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/declared" {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		}
		for at, n := 0, 1; at < len(text); at, n = at+n, n*3/2+1 {
			n = min(n, len(text)-at)
			_, _ = w.Write(text[at : at+n])
			_ = http.NewResponseController(w).Flush()
		}
	})
	for _, how := range []string{"declared", "chunked"} {
		res := g.act("k", fmt.Sprintf(`{"service":"bearer","action":"get","params":{"how":%q}}`, how))
		if res.status != 200 || res.body != string(text) || how == "declared" && res.header.Get("Content-Length") != fmt.Sprint(len(text)) {
			t.Errorf("%s: %d, %d bytes of %d", how, res.status, len(res.body), len(text))
		}
	}
	if strings.Contains(g.logged.String(), "repeated its credential") {
		t.Error(g.logged.String())
	}
}

// TestEventsDoNotWaitForTheScan: an event goes out as it comes, and not with the
// next one, also where its last bytes could begin the credential.
func TestEventsDoNotWaitForTheScan(t *testing.T) {
	next := make(chan struct{})
	g := echoWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			send(w, "data: Zx81+kQ\n\n")
			<-next
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := g.server.Client().Do(g.request(ctx, "k", `{"service":"bearer","action":"get","params":{"how":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	p := make([]byte, len("data: Zx81+kQ\n\n"))
	for range 3 {
		if _, err := io.ReadFull(res.Body, p); err != nil || string(p) != "data: Zx81+kQ\n\n" {
			t.Fatalf("%q %v", p, err)
		}
		next <- struct{}{}
	}
}
