package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAgentsConnectionsAreWatched, by TCP and by TLS: a silent call whose caller sent a
// line end behind it and hung up gives its slot back.
func TestAgentsConnectionsAreWatched(t *testing.T) {
	called := make(chan bool, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- true
		<-r.Context().Done()
	}))
	defer upstream.Close()
	services := fmt.Sprintf("services: {tools: {base_url: %q, allow_private: true, actions: {get: {method: GET, path: /x}}}}\n", upstream.URL)
	folder := t.TempDir()
	cert, key := pemPair(t, 1)
	certFile, keyFile := filepath.Join(folder, "cert"), filepath.Join(folder, "key")
	for name, text := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, set := range map[string]string{"TCP": "", "TLS": fmt.Sprintf("server: {tls_cert_file: %q, tls_key_file: %q}\n", certFile, keyFile)} {
		t.Run(name, func(t *testing.T) {
			s, _ := startWith(t, "127.0.0.1", set+services)
			inFlight := func() int64 { return s.limiter.Stats().Process.InFlight }
			c, err := net.Dial("tcp", s.agentsListener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if name == "TLS" {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			}
			defer func() { _ = c.Close() }()
			const body = `{"service":"tools","action":"get"}`
			say := func(text string) {
				if _, err := io.WriteString(c, text); err != nil {
					t.Fatal(err)
				}
			}
			say(fmt.Sprintf("POST /v1/act HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", s.firstKey.Reveal(), len(body), body))
			<-called
			if inFlight() == 0 {
				t.Fatal("a call holds no slot")
			}
			say("\r\n")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); inFlight() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the slot is not given back")
				}
			}
		})
	}
}

// TestAgentsOverTLS have HTTP/2 where they want it, and are told where they speak
// HTTP to a port of TLS.
func TestAgentsOverTLS(t *testing.T) {
	folder := t.TempDir()
	cert, key := pemPair(t, 1)
	for name, text := range map[string][]byte{"cert": cert, "key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := startWith(t, "127.0.0.1", fmt.Sprintf("server: {tls_cert_file: %q, tls_key_file: %q}\n", filepath.Join(folder, "cert"), filepath.Join(folder, "key")))
	address := s.agentsListener.Addr().String()
	for _, http2 := range []bool{true, false} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}}
		res, err := client.Get("https://" + address + "/v1/log/key")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		client.CloseIdleConnections()
		if want := map[bool]int{true: 2, false: 1}[http2]; res.ProtoMajor != want || res.StatusCode != 200 {
			t.Errorf("%s %s, want HTTP/%d", res.Proto, res.Status, want)
		}
	}
	res, err := http.Get("http://" + address + "/v1/log/key")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if said, _ := io.ReadAll(res.Body); res.StatusCode != 400 || !strings.Contains(string(said), "HTTP request to an HTTPS server") {
		t.Errorf("%s %q", res.Status, said)
	}
}
