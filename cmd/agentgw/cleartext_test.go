package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestHTTP2InClearText: without a certificate agents may begin with HTTP/2, and those
// that ask for it in HTTP/1.1 stay there (CVE-2022-41721).
func TestHTTP2InClearText(t *testing.T) {
	s, _ := startWith(t, "127.0.0.1", "version: 1\n")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	for range 2 {
		r, err := http.NewRequest("GET", "http://"+s.agentsListener.Addr().String()+"/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Agentgate-Key", s.firstKey.Reveal())
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != 200 || res.ProtoMajor != 2 {
			t.Errorf("%s %s", res.Proto, res.Status)
		}
	}
	c, err := net.Dial("tcp", s.agentsListener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(c, "GET /v1/whoami HTTP/1.1\r\nHost: g\r\nAgentgate-Key: %s\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n", s.firstKey.Reveal())
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 || res.ProtoMajor != 1 {
		t.Errorf("asked to upgrade: %v %v", res, err)
	}
}
