package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentgw/internal/freeport"
	"agentgw/internal/receipts"
)

// proxied is a gateway process through which an HTTPS server is to be reached.
type proxied struct {
	t                 *testing.T
	folder, ca        string
	data, key, listen string
	server            *httptest.Server
	gateway           *exec.Cmd
	stderr            lockedBuffer
}

func startProxied(t *testing.T) *proxied {
	t.Helper()
	p := &proxied{t: t, folder: t.TempDir(), listen: freeport.Address(t)}
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s with %d bytes", r.Method, r.URL.Path, n)
	}))
	t.Cleanup(p.server.Close)
	p.ca, p.data = filepath.Join(p.folder, "ca.pem"), filepath.Join(p.folder, "data")
	file := filepath.Join(p.folder, "registry.yaml")
	for path, text := range map[string][]byte{
		p.ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
		file: fmt.Appendf(nil, "version: 1\ntunnels: {allow: [%q], allow_private: true}\n", p.server.Listener.Addr()),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admin := freeport.Address(t)
	p.gateway = exec.Command(program(t, p.folder), "serve", "--registry", file, "--data", p.data, "--listen", p.listen, "--admin-listen", admin,
		"--drain-timeout", "1s", "--log-level", "debug")
	p.gateway.Stderr = &p.stderr
	if err := p.gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.gateway.Process.Kill(); _ = p.gateway.Wait() })
	if !ready(admin) {
		t.Fatalf("the gateway did not get ready:\n%s", p.stderr.String())
	}
	key, err := os.ReadFile(filepath.Join(p.data, "first-key"))
	if err != nil {
		t.Fatal(err)
	}
	p.key = strings.TrimSpace(string(key))
	return p
}

// run runs a client of proxies.
func (p *proxied) run(proxy, name string, args ...string) (stdout, stderr string, err error) {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "https_proxy="+proxy, "no_proxy=", "NO_PROXY=", "CURL_CA_BUNDLE="+p.ca, "SSL_CERT_FILE="+p.ca, "NODE_EXTRA_CA_CERTS="+p.ca)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return out.String(), errs.String(), err
}

func (p *proxied) proxy(key string) string { return "http://x:" + key + "@" + p.listen }

// goes is the way of a Go program by the same variable.
func (p *proxied) goes(proxy string) *http.Transport {
	roots := x509.NewCertPool()
	roots.AddCert(p.server.Certificate())
	return &http.Transport{
		Proxy:           func(*http.Request) (*url.URL, error) { return url.Parse(proxy) },
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
}

// TestProgramsThatKnowAProxy reach an HTTPS server through the gateway with nothing but
// https_proxy set: curl and Go here; Python and Node where make interop names them. What
// each of them has carried is in its receipt; the gateway waits for tunnels when it is told
// to end, and no longer than it is told to wait; and the log verifies.
func TestProgramsThatKnowAProxy(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	p := startProxied(t)
	at := p.server.URL + "/at"
	body := filepath.Join(p.folder, "body")
	if err := os.WriteFile(body, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "POST /at with 1048576 bytes"
	tunnels := 0
	for name, command := range map[string][]string{
		"curl":                    {"curl", "-sS", "--data-binary", "@" + body, at},
		"curl, bearer":            {"curl", "-sS", "--proxy", "http://" + p.listen, "--proxy-header", "Proxy-Authorization: Bearer " + p.key, "--data-binary", "@" + body, at},
		"curl, after a challenge": {"curl", "-sS", "--proxy-anyauth", "--data-binary", "@" + body, at},
		"Python":                  {os.Getenv("INTEROP_PYTHON"), "../../interop/tunnel.py", at},
		"Node":                    {os.Getenv("INTEROP_NODE"), "../../interop/tunnel.mjs", at},
	} {
		if command[0] == "" {
			continue
		}
		tunnels++
		out, errs, err := p.run(p.proxy(p.key), command[0], command[1:]...)
		if err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s: %q %v %s", name, out, err, errs)
		}
	}
	transport := p.goes(p.proxy(p.key))
	res, err := (&http.Client{Transport: transport}).Post(at, "", bytes.NewReader(make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(text) != want {
		t.Errorf("Go: %q %v", text, err)
	}
	// The Go program keeps its connection, and so a tunnel is open when the gateway ends.
	if out, errs, err := p.run(p.proxy("agw_none"), "curl", "-sS", at); err == nil || !strings.Contains(errs, "407") {
		t.Errorf("without a key: %q %s %v", out, errs, err)
	}
	if out, errs, err := p.run(p.proxy(p.key), "curl", "-sS", "https://localhost:1/"); err == nil || !strings.Contains(errs, "403") {
		t.Errorf("off the list: %q %s %v", out, errs, err)
	}
	if err := p.gateway.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.gateway.Wait(); err != nil {
		t.Errorf("%v\n%s", err, p.stderr.String())
	}
	if said := p.stderr.String(); strings.Contains(said, p.key) || strings.Contains(said, p.key[4:20]) || !strings.Contains(said, "scope_denied") {
		t.Errorf("the log has the key, or nothing of a refusal:\n%s", said)
	}

	b := &bench{t: t, data: p.data}
	out, _ := b.want(0, "receipts", "list", "--data", p.data, "--service", "tunnels", "--json")
	var list []struct {
		Decision, Ending, Action string
		In, Out                  int64
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err, out)
	}
	ended := map[string]int{}
	for _, r := range list {
		ended[r.Ending]++
		if r.Decision != receipts.Allowed {
			continue
		}
		if r.Action != p.server.Listener.Addr().String() || r.In < 1<<20 || r.In > 2<<20 || r.Out < 500 || r.Out > 64<<10 {
			t.Errorf("%+v", r)
		}
	}
	// A program that closes while the server's last words wait to be read breaks off.
	if ended["complete"]+ended["client_cancelled"] != tunnels || ended["shutdown"] != 1 || ended[""] != 1 || len(list) != tunnels+2 {
		t.Errorf("%v of %d tunnels\n%s", ended, tunnels, out)
	}
	vkey := filepath.Join(p.folder, "log.vkey")
	key, _ := b.want(0, "receipts", "key", "--data", p.data)
	if err := os.WriteFile(vkey, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	b.want(4, "receipts", "verify", p.data, "--vkey", vkey) // holds; there is no anchor
}
