package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/freeport"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
)

const secretsRegistry = `version: 1
services:
  bearer: {base_url: "%[1]s", allow_private: true, credential: {type: bearer}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?", X-Own: {in: header, type: string, required: false}}}, post: {method: POST, path: /post, params: {q: string}}}}
  basic: {base_url: "%[1]s", allow_private: true, credential: {type: basic}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?", X-Own: {in: header, type: string, required: false}}}}}
  header: {base_url: "%[1]s", allow_private: true, credential: {type: header, name: X-Token}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  query: {base_url: "%[1]s", allow_private: true, credential: {type: query, name: token}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  down: {base_url: "%[2]s", allow_private: true, credential: {type: query, name: token}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  guarded: {base_url: "%[1]s", credential: {type: query, name: token}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  without: {base_url: "%[1]s", allow_private: true, credential: {type: bearer}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  slow: {base_url: "%[1]s/slow", allow_private: true, timeout: 50ms, credential: {type: query, name: token}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  away: {base_url: "%[1]s/away", allow_private: true, credential: {type: query, name: token}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  dies: {base_url: "%[1]s/dies", allow_private: true, credential: {type: bearer}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
  fails: {base_url: "%[1]s/fails", allow_private: true, credential: {type: query, name: token}, actions: {get: {method: GET, path: "/{place}", params: {place: string, q: string, n: "int?"}}}}
`

// leaky is an upstream that says what it was told wherever it can, in ways that
// a gateway may write down: a redirect, a status line's text, a broken answer.
func leaky() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/slow"):
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/away"):
			w.Header().Set("Location", "https://elsewhere.example/?"+r.URL.RawQuery+"&a="+url.QueryEscape(r.Header.Get("Authorization")))
			w.WriteHeader(http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/dies"):
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case strings.HasSuffix(r.URL.Path, "/echo"):
			w.Header().Set("X-Echo", r.Header.Get("Authorization")+r.Header.Get("X-Token"))
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, "%s %q %s", r.Header, r.URL.RawQuery, base64.StdEncoding.EncodeToString([]byte(r.Header.Get("Authorization")+r.URL.RawQuery)))
		case strings.HasPrefix(r.URL.Path, "/fails"):
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
}

// secretsWorld is a gateway at debug level with secrets in every place where
// there is one.
type secretsWorld struct {
	*bench
	server *server
	log    *lockedBuffer
	key    string
	seen   bytes.Buffer // every answer that agents and operators got
}

func newSecretsWorld(t *testing.T, flag ...string) *secretsWorld {
	t.Helper()
	upstream := httptest.NewServer(leaky())
	t.Cleanup(upstream.Close)
	w := &secretsWorld{bench: newBench(t, ""), log: &lockedBuffer{}}
	w.write("registry.yaml", fmt.Appendf(nil, secretsRegistry, upstream.URL, "http://"+freeport.Address(t)))
	out, _ := w.want(exitDone, "keys", "create", "--id", "bot", "--services", "*", "--users", "*", "--json")
	var made struct{ Key string }
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	w.key = made.Key
	for service, secret := range credentials {
		if code, _, errs := w.run(secret+"\n", "credentials", "set", "--service", service); code != exitDone {
			t.Fatal(errs)
		}
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(append([]string{"--data-dir", w.data, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--admin-token", planted["admin token"]}, flag...)); err != nil {
		t.Fatal(err)
	}
	read := func() (*config.Settings, *registry.Snapshot, error) {
		snapshot, err := registry.Load("registry.yaml")
		if err != nil {
			return nil, nil, err
		}
		settings, err := config.Load(flags, nil, nil)
		return settings, snapshot, err
	}
	settings, snapshot, err := read()
	if err != nil {
		t.Fatal(err)
	}
	w.server, err = start(settings, snapshot, read, slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// credentials are what the vault holds.
var credentials = map[string]string{
	"bearer": "vault-bearer-Zx81kQ0pLm", "basic": "vaultuser:vault-basic-Yt72jW9oNk", "header": "vault-header-Xs63hV8nMj",
	"query": "vault-query-Wr54gU7mLh", "down": "vault-down-Vq45fT6lKg", "guarded": "vault-guarded-Up36eS5kJf",
	"slow": "vault-slow-To27dR4jHd", "away": "vault-away-Sn18cQ3hGs", "dies": "vault-dies-Rm09bP2gFa", "fails": "vault-fails-Ql90aO1fDp",
}

// planted are what callers bring: none of them may be written anywhere.
var planted = map[string]string{
	"wrong key":        "agw_ThisKeyIsWrong0123456789ABCDEFGHIJKLMNOPQRabcdef",
	"basic password":   "basic-password-9f8e7d6c",
	"token":            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJlLXRoYXQtaXMtd3Jvbmc",
	"query credential": "query-credential-1a2b3c4d",
	"userinfo":         "userinfo-password-5e6f7a8b",
	"path":             "path-secret-0c1d2e3f",
	"cookie":           "cookie-secret-4a5b6c7d",
	"parameter":        "parameter-value-8e9fa0b1",
	"header parameter": "header-parameter-c2d3e4f5",
	"body":             "body-secret-06172839",
	"user agent":       "user-agent-secret-4a5b6c7e",
	"admin token":      "admin-token-secret-8f90a1b2",
	"wrong admin":      "wrong-admin-token-c3d4e5f6",
}

// say sends one request, byte for byte, and keeps the answer.
func (w *secretsWorld) say(to net.Listener, request string) {
	w.t.Helper()
	c, err := net.Dial("tcp", to.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		w.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return // cut, which tells nothing
	}
	defer func() { _ = res.Body.Close() }()
	_ = res.Header.Write(&w.seen)
	_, _ = io.Copy(&w.seen, res.Body)
}

func request(line, body string, headers ...string) string {
	return line + " HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n" +
		strings.Join(append(headers, "\r\n"), "\r\n") + body
}

// TestSecretsAreWrittenNowhere drives every way to fail, with secrets wherever
// one can stand, and then searches all that the gateway and its commands wrote.
func TestSecretsAreWrittenNowhere(t *testing.T) {
	w := newSecretsWorld(t)
	agents, operators := w.server.agentsListener, w.server.operatorsListener
	p := planted
	good := "Authorization: Bearer " + w.key
	for service := range credentials {
		w.say(agents, request("POST /v1/act", fmt.Sprintf(`{"service":%q,"action":"get","params":{"place":%q,"q":%q}}`, service, p["parameter"], p["parameter"]), good,
			"Cookie: session="+p["cookie"], "User-Agent: "+p["user agent"]))
		w.say(agents, request("POST /v1/act", fmt.Sprintf(`{"service":%q,"action":"get","params":{"place":"x","q":"y","n":%q}}`, service, p["parameter"]), good))
	}
	for _, body := range []string{
		fmt.Sprintf(`{"service":"without","action":"get","params":{"place":"x","q":%q}}`, p["parameter"]),
		fmt.Sprintf(`{"service":"bearer","action":"get","params":{"place":"x","q":"y","X-Own":%q}}`, p["header parameter"]),
		fmt.Sprintf(`{"service":"bearer","action":"get","params":{"place":"x","q":"y","X-Own":"%s\u0000"}}`, p["header parameter"]),
		fmt.Sprintf(`{"service":"bearer","action":"get","params":{"place":"../%s","q":"y"}}`, p["parameter"]),
		fmt.Sprintf(`{"service":"bearer","action":"post","params":{"q":%q}}`, p["body"]),
		fmt.Sprintf(`{"service":"bearer","action":"post","params":{"q":[%q]}}`, p["body"]),
		fmt.Sprintf(`{"service":"bearer","action":"none","params":{"q":%q}}`, p["body"]),
		fmt.Sprintf(`{"service":"none","action":"none","params":{"q":%q}}`, p["body"]),
		fmt.Sprintf(`{"service":"bearer","params":{"q":%q`, p["body"]),
		p["body"], `"` + p["body"] + `"`, `{"params":"` + p["body"] + `"}`,
	} {
		w.say(agents, request("POST /v1/act", body, good))
	}
	w.say(agents, strings.Replace(request("POST /v1/act", p["body"], good), "Content-Length: "+fmt.Sprint(len(p["body"])), "Content-Length: 99999999999", 1))
	call := `{"service":"bearer","action":"get","params":{"place":"x","q":"y"}}`
	for _, header := range []string{
		"Authorization: Bearer " + p["wrong key"], "Authorization: bearer  " + p["wrong key"], "Authorization: " + p["wrong key"], "Authorization: Token " + p["wrong key"],
		"Authorization: Bearer " + p["token"], "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+p["basic password"])),
		"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+w.key)), "Authorization: Bearer " + w.key + "x", "Authorization: Bearer " + w.key + "," + p["wrong key"],
		"X-Api-Key: " + p["wrong key"], "Agentgate-Key: " + p["wrong key"], "Agentgate-Key: " + w.key + " ", "Api-Key: " + w.key, "Proxy-Authorization: Bearer " + w.key,
		"Cookie: key=" + w.key, "Agentgate-Delegation: " + p["token"],
	} {
		w.say(agents, request("POST /v1/act", call, header))
		w.say(agents, request("POST /v1/act", call, header, good))
		w.say(agents, request("GET /v1/whoami", "", header))
	}
	for _, line := range []string{
		"POST /v1/act?key=" + w.key, "POST /v1/act?access_token=" + p["query credential"], "GET /v1/services?api_key=" + p["query credential"],
		"POST http://user:" + p["userinfo"] + "@gw/v1/act", "GET http://user:" + p["userinfo"] + "@gw/nowhere",
		"GET /v1/receipts/" + p["path"], "GET /v1/services/" + p["path"], "GET /nowhere/" + p["path"], "GET /" + w.key, "DELETE /v1/act?x=" + p["query credential"],
		"GET /%zz" + p["path"], "CONNECT " + p["path"] + ":443",
	} {
		w.say(agents, request(line, ""))
		w.say(agents, request(line, call, good))
	}
	for _, line := range []string{"GET /metrics", "GET /readyz", "GET /healthz", "GET /admin/v1/config", "POST /admin/v1/reload", "GET /admin/v1/" + p["path"], "GET /nowhere?t=" + p["query credential"],
		"GET /admin/v1/tenants", "GET /admin/v1/tenants/key:bot", "GET /admin/v1/tenants/" + w.key, "POST /admin/v1/tenants/key:" + w.key + "/block?ahead=true",
		"POST /admin/v1/tenants/" + w.key + "/unblock", "POST /admin/v1/tenants/key:bot/block", "POST /admin/v1/tenants/key:bot/unblock",
		"GET /admin/v1/limits/explain?key=bot&service=bearer&action=get", "GET /admin/v1/limits/explain?service=bearer&action=get&key=" + w.key,
		"GET /admin/v1/limits/explain?key=bot&service=bearer&action=get&key=" + p["query credential"]} {
		w.say(operators, request(line, ""))
		w.say(operators, request(line, "", "Authorization: Bearer "+p["wrong admin"]))
		w.say(operators, request(line, "", "Authorization: Bearer "+p["admin token"]))
	}
	w.server.stop(context.Background())

	// What every command says of it.
	w.env = []string{"AGENTGATE_LOG_LEVEL=debug"}
	var said strings.Builder
	ids := 0
	salts := map[string]bool{} // which are told on demand, and stand nowhere
	if err := receipts.Scan(filepath.Join(w.data, "receipts"), func(s receipts.Stored) error {
		if s.Record.Kind == receipts.KindIntent || s.Record.Kind == receipts.KindRefusal {
			ids++
			_, out, errs := w.run("", "receipts", "show", s.Record.ID, "--json")
			said.WriteString(out + errs)
			if s.Record.Params != nil {
				_, out, errs := w.run("", "receipts", "open", s.Record.ID, "--json")
				var opened openedReceipt
				if err := json.Unmarshal([]byte(out), &opened); err != nil || opened.Salt == "" {
					t.Errorf("%s: %v", errs, err)
				}
				salts[opened.Salt] = true
				said.WriteString(strings.ReplaceAll(out, opened.Salt, "") + errs)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if ids < 60 {
		t.Errorf("%d receipts: the calls did not happen", ids)
	}
	for _, args := range [][]string{
		{"receipts", "list", "--limit", "0"}, {"receipts", "tail", "-n", "1000", "--json"}, {"receipts", "checkpoint"}, {"receipts", "key"},
		{"keys", "list", "--json"}, {"credentials", "list", "--json"}, {"check"}, {"credentials", "set", "--service", "none"},
		{"explain", "--key", "bot", "--service", "bearer", "--action", "get"}, {"explain", "--key", "bot", "--service", "basic", "--action", "get", "--json"},
		{"explain", "--key", w.key, "--service", "bearer", "--action", "get"}, {"explain", "--key", "bot", "--service", "bearer", w.key},
	} {
		_, out, errs := w.run(p["body"]+"\x00", args...)
		said.WriteString(out + errs)
	}
	places := map[string]string{"log": w.log.String(), "answers": w.seen.String(), "commands": said.String()}
	if err := filepath.WalkDir(w.data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			places[path] = string(w.read(path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if places["log"] == "" || places["answers"] == "" || places[filepath.Join(w.data, "state.db")] == "" {
		t.Fatal("there is nothing to search in")
	}
	secrets := map[string]string{"key": w.key}
	for name, s := range planted {
		secrets[name] = s
	}
	for name, s := range credentials {
		_, password, ok := strings.Cut(s, ":")
		if !ok {
			password = s
		}
		secrets["credential of "+name] = password
	}
	if len(salts) < 20 {
		t.Errorf("%d salts", len(salts))
	}
	for s := range salts {
		raw, err := hex.DecodeString(s)
		if err != nil {
			t.Error(err)
		}
		secrets["salt "+s], secrets["raw salt "+s] = s, string(raw)
	}
	for name, s := range secrets {
		for _, form := range forms(s) {
			for place, text := range places {
				if name == "path" && place == "answers" {
					continue // a 404 repeats to the caller the service that he asked for
				}
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s stands in %s as %q: %q", name, place, form, text[max(0, at-120):min(len(text), at+len(form)+60)])
				}
			}
		}
	}
}

// forms are the spellings in which a secret may have been written: as it is, in
// hex, escaped, and inside of any base64, whatever stands before it.
func forms(s string) []string {
	all := []string{s, s[:len(s)*3/4], s[len(s)/4:], hex.EncodeToString([]byte(s)), url.QueryEscape(s)}
	for before := range 3 {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := e.EncodeToString([]byte(strings.Repeat("x", before) + s))
			all = append(all, text[4:len(text)-2]) // the ends depend on the neighbours
		}
	}
	return all
}

// TestNobodyWritesARecordOfTheirOwn: what a caller may choose ends no line and
// begins no member, whatever it holds: a call has the records of a call.
func TestNobodyWritesARecordOfTheirOwn(t *testing.T) {
	w := newSecretsWorld(t)
	stored := func() (all []*receipts.Record) {
		t.Helper()
		if err := receipts.Scan(filepath.Join(w.data, "receipts"), func(s receipts.Stored) error {
			if bytes.ContainsFunc(s.Line, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u202e' }) {
				t.Errorf("a raw control character in %q", s.Line)
			}
			var any map[string]any
			if err := json.Unmarshal(s.Line, &any); err != nil {
				t.Errorf("%v: %s", err, s.Line)
			}
			all = append(all, s.Record)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := len(stored())
	good := "Authorization: Bearer " + w.key
	forged := []string{
		"x\n{\"v\":1,\"kind\":\"outcome\",\"id\":\"forged\"}", "x\r\nforged", `x","decision":"allowed","id":"forged`, `x\","decision":"allowed`, "x\x00\x01\x1b[2Jforged",
		"x\u2028\u202eforged\u0085\ufeff", "x\xff\xfeforged", `\u000a\n%0a%0d`, "}]}", strings.Repeat("forged\n", 2000),
	}
	for _, text := range forged {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{
			fmt.Sprintf(`{"service":%s,"action":"get"}`, quoted),
			fmt.Sprintf(`{"service":"bearer","action":%s}`, quoted),
			fmt.Sprintf(`{"service":"none","action":"get","on_behalf_of":%s}`, quoted),
		} {
			w.say(w.server.agentsListener, request("POST /v1/act", body, good))
		}
	}
	calls := 3 * len(forged)
	// Headers, with the control bytes that a socket can carry and %-escapes.
	for _, header := range []string{"X-Request-Id: x\",\"decision\":\"allowed", "X-Request-Id: x%0aforged", "User-Agent: \tx\x01\x7f", "X-Forwarded-For: 1.2.3.4\",\"id\":\"forged",
		"Traceparent: 00-\",\"id\":\"forged", "Agentgate-On-Behalf-Of: x\",\"id\":\"forged"} {
		w.say(w.server.agentsListener, request("POST /v1/act", `{"service":"none","action":"get"}`, good, header))
	}
	w.server.stop(context.Background())
	all := stored()[before:]
	last := len(all) - 2 // of what was refused; what follows is the log's own, of a stop in good order
	if all[last].Kind != receipts.KindHeads || all[last+1].Kind != receipts.KindSeal {
		t.Errorf("it ends with %s, %s", all[last].Kind, all[last+1].Kind)
	}
	all = all[:last]
	for _, r := range all {
		if r.Kind != receipts.KindRefusal || r.Decision != receipts.Refused || r.ID == "forged" || r.Status < 400 {
			t.Errorf("%+v", r)
		}
	}
	// net/http refuses a control byte in a header before anybody counts the call.
	if got := len(all); got < calls+4 || got > calls+6 {
		t.Errorf("%d records for %d calls and 6 with headers", got, calls)
	}
	lines := 0
	for _, name := range []string{"00000000000000000000.jsonl"} {
		lines = strings.Count(string(w.read(filepath.Join(w.data, "receipts", name))), "\n{\"v\":")
	}
	if lines != before+len(all)+2 {
		t.Errorf("%d record lines, %d records", lines, before+len(all)+2)
	}
	if _, err := os.Stat(filepath.Join(w.data, "receipts", "quarantine")); err == nil {
		t.Error("something had to be repaired")
	}
}
