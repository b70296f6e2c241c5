package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// desyncCase is one request of http-desync-guardian (Apache-2.0, testdata), and what that
// thinks of it: compliant, acceptable, ambiguous or severe.
type desyncCase struct {
	Name, URI, Method, Version string
	Headers                    []struct{ Name, Value string }
	Expected                   struct{ Tier, Reason string }
}

func desyncCases(t *testing.T) (all []desyncCase) {
	t.Helper()
	files, err := filepath.Glob("testdata/http-desync-guardian/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []desyncCase
		if err := yaml.Unmarshal(text, &list); err != nil {
			t.Fatal(file, err)
		}
		all = append(all, list...)
	}
	if len(all) != 158 {
		t.Fatalf("%d cases", len(all))
	}
	return all
}

// onTheWire is a text of a case as bytes: what is written as one byte there is one.
func onTheWire(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c < 0x100 {
			b.WriteByte(byte(c))
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// stricter is what the gateway refuses of what the guardian lets pass, and why.
func (c desyncCase) stricter() (status int, why string) {
	for _, h := range c.Headers {
		value := strings.ToLower(strings.Trim(onTheWire(h.Value), " \t"))
		switch {
		case strings.HasSuffix(h.Name, " "):
			return 400, "a server MUST reject white space before the colon (RFC 9112, section 5.1)"
		case strings.ContainsAny(h.Name+h.Value, "\x01"):
			return 400, "a control byte is in no name and no value (RFC 9110, section 5.5)"
		case strings.Contains(h.Name, "_"):
			return 400, "a name with an underscore is another one to some servers (CVE-2025-64484)"
		case h.Name == "Transfer-Encoding" && value != "chunked":
			return 501, "a server SHOULD respond with 501 to a coding that it does not know (RFC 9112, section 6.1)"
		}
	}
	switch {
	case c.Version == "HTTP/0.9":
		return 505, "that major version is not spoken here (RFC 9110, section 15.6.6)"
	case c.Version == "" || strings.HasSuffix(c.Version, " ") || strings.Contains(c.URI, " "):
		return 400, "a request line has three parts with a space between them (RFC 9112, section 3)"
	case c.URI == "":
		return 400, "a target is not empty (RFC 9112, section 3.2)"
	case strings.ContainsAny(c.URI, "{}[]`\"\\^") || strings.IndexFunc(c.URI, func(r rune) bool { return r >= 0x80 }) >= 0:
		return 400, "such a byte is no part of a target but by its number (RFC 3986, section 2)"
	case strings.Contains(c.URI, "%0D") || strings.Contains(c.URI, "%0A") || strings.Contains(c.URI, "%09"):
		return 400, "a control byte that is hidden in a path is read in two ways"
	}
	return 0, ""
}

// request is the case as a request of key k: by /proxy with its method and target, or to
// /v1/act with its header alone. Its body is as long as it says, or in one chunk.
func (c desyncCase) request(key, way string) (raw, body string) {
	body = bareCall
	method, target, version := c.Method, "/proxy/bare"+onTheWire(c.URI), " "+c.Version
	if c.URI == "" {
		target = ""
	}
	if c.Version == "" {
		version = ""
	}
	if way == "act" {
		target = "/v1/act"
		if c.Expected.Tier == "Compliant" || c.Expected.Tier == "Acceptable" {
			method = "POST" // nothing else is taken there, whatever its header
		}
	}
	raw = method + " " + target + version + "\r\nHost: gateway\r\nAgentgate-Key: " + key + "\r\n"
	length, chunked := -1, false
	for _, h := range c.Headers {
		if h.Name == "Host" {
			continue
		}
		raw += onTheWire(h.Name) + ":" + onTheWire(h.Value) + "\r\n"
		if n, err := strconv.Atoi(strings.Trim(h.Value, " \t")); err == nil && h.Name == "Content-Length" {
			length = n
		}
		chunked = chunked || h.Name == "Transfer-Encoding"
	}
	if way == "act" { // which takes JSON alone
		raw = strings.Replace(raw, "application/x-www-form-urlencoded", "application/json", 1)
	}
	switch {
	case chunked:
		return raw + fmt.Sprintf("\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body), body
	case length < 0 && way == "act":
		return raw + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), body
	case length <= 0:
		return raw + "\r\n", ""
	}
	if length < len(body) || way == "proxy" {
		body = strings.Repeat("x", length)
	}
	body += strings.Repeat(" ", length-len(body))
	return raw + "\r\n" + body, body
}

// TestDesync: of the requests that http-desync-guardian knows, those that it calls severe
// or ambiguous are refused, close their connection and reach nobody, and so does what is
// hidden behind them; of the others a service gets what was sent.
func TestDesync(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := setup{registry: strings.ReplaceAll(headered(w.url()), "allow_private: true", "allow_private: true\n    passthrough: true"), vault: fullVault(t),
		settings: func(s *config.Settings) { s.MaxRequestBody = 8 << 20 }}.world(t, hello, tireless("k"))
	refused, served := 0, 0
	for _, way := range []string{"act", "proxy"} {
		for _, c := range desyncCases(t) {
			raw, sent := c.request(g.keys["k"], way)
			bad := c.Expected.Tier == "Severe" || c.Expected.Tier == "Ambiguous"
			stricter, why := c.stricter()
			if way == "act" && (len(c.Headers) == 0 || c.Expected.Reason == "GetHeadZeroContentLength" || c.Headers[0].Name == "X-Forwarded-For" || c.Headers[0].Name == "Accept" || c.Name == "Correct CL OK") {
				continue // all that there is about it is its target or its method
			}
			if bad {
				raw += g.proxied("GET", "bare/hidden", "k", "")
			}
			before := intents(g)
			p := g.dial()
			_, _ = io.WriteString(p.c, raw) // which may be refused before its end
			res, body := p.told(c.Method == "HEAD", bad)
			told := fmt.Sprintf("%s %q (%s, %s): %s %s", way, c.Name, c.Expected.Tier, c.Expected.Reason, res.Status, body)
			switch {
			case bad:
				refused++
				of := []int{400, 501}
				if way == "act" && c.Method != "POST" {
					of = append(of, 405)
				}
				if c.Version == "HTTP/0.9" {
					of = []int{505}
				}
				if rest := p.closed(); rest != "" || !slices.Contains(of, res.StatusCode) {
					t.Errorf("%s, want one of %d; and then came %q", told, of, rest)
				}
				if arrived := w.take(); len(arrived) > 0 || intents(g) != before {
					t.Errorf("%s; the service saw %q", told, arrived)
				}
			case stricter != 0:
				refused++
				if arrived := w.take(); res.StatusCode != stricter || len(arrived) > 0 || intents(g) != before {
					t.Errorf("%s, want %d: %s; the service saw %q", told, stricter, why, arrived)
				}
			default:
				served++
				arrived := w.take()
				if res.StatusCode != 200 || len(arrived) != 1 || intents(g) != before+1 {
					t.Errorf("%s; %d receipts, and the service saw %q", told, intents(g)-before, arrived)
				} else if way == "proxy" {
					c.agrees(t, arrived[0], sent)
				}
			}
			_ = p.c.Close()
			w.take()
		}
	}
	t.Logf("%d were refused, %d were served", refused, served)
}

// told is the next answer. Whoever is refused while he is sending may lose the end of it
// with the connection (RFC 9112, section 9.6). net/http answers a HEAD that it refuses
// with a body.
func (p *peer) told(head, refused bool) (*http.Response, string) {
	p.t.Helper()
	if err := p.c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	method := "GET"
	if head && !refused {
		method = "HEAD"
	}
	res, err := http.ReadResponse(p.r, &http.Request{Method: method})
	if err != nil {
		p.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) && !(head && errors.Is(err, io.ErrUnexpectedEOF)) {
		p.t.Error(err)
	}
	return res, string(body)
}

// intents is how many calls have a receipt that says that a service is called.
func intents(g *world) (n int) {
	for _, r := range g.ledger.all() {
		if r.Kind == receipts.KindIntent {
			n++
		}
	}
	return n
}

// agrees holds that a service saw the request of a case.
func (c desyncCase) agrees(t *testing.T, arrived, sent string) {
	t.Helper()
	_, body, _ := strings.Cut(arrived, "\r\n\r\n")
	if slices.Contains(lines(arrived), "Transfer-Encoding: chunked") {
		_, body, _ = strings.Cut(body, "\r\n")
		body = strings.TrimSuffix(body, "\r\n0\r\n\r\n")
	}
	first := c.Method + " " + onTheWire(c.URI) + " HTTP/1.1"
	if lines(arrived)[0] != first || body != sent {
		t.Errorf("%q: the service saw %q, want %q and %q", c.Name, arrived, first, sent)
	}
	for _, h := range c.Headers {
		name, value := onTheWire(h.Name), strings.Trim(onTheWire(h.Value), " \t")
		if name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection" || name == "X-Forwarded-For" {
			continue
		}
		if !slices.ContainsFunc(lines(arrived), func(line string) bool {
			n, v, _ := strings.Cut(line, ": ")
			return strings.EqualFold(n, name) && v == value
		}) {
			t.Errorf("%q: %s: %q is not in %q", c.Name, name, value, arrived)
		}
	}
}
