package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// TestBodyCutShort: a body that ends before its declared length is not a whole
// one, though what came of it would be a call.
func TestBodyCutShort(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, everything("k"))
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	body := `{"service":"tools","action":"stream"}`
	_, err = fmt.Fprintf(c, "POST /v1/act HTTP/1.1\r\nHost: gateway.example\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		w.keys["k"], len(body)+10, body)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if res.StatusCode != http.StatusBadRequest || res.Header.Get("Agentgate-Code") != "bad_request" || w.seen != 0 {
		t.Errorf("%s, %s; the upstream was called %d times", res.Status, res.Header.Get("Agentgate-Code"), w.seen)
	}
}
