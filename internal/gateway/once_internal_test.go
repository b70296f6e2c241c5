package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"agentgw/internal/registry"
)

// TestOnceHoldsForAnyRequest: also one that net/http would gladly send again,
// since it was made with a body that can be had twice and calls itself
// idempotent.
func TestOnceHoldsForAnyRequest(t *testing.T) {
	var seen atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if seen.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	transport := NewTransport(true)
	defer transport.CloseIdleConnections()
	for i, want := range []bool{true, false} {
		r, err := http.NewRequest("POST", server.URL, bytes.NewReader([]byte(strings.Repeat("b", 100))))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "once")
		ctx, cancel := context.WithCancelCause(t.Context())
		res, err := transport.RoundTrip(r.WithContext((&once{cancel: cancel}).watched(ctx, &httptrace.ClientTrace{})))
		if (err == nil) != want {
			t.Fatalf("request %d: %v", i, err)
		}
		if err == nil {
			_ = res.Body.Close()
		}
		cancel(nil)
	}
	if n := seen.Load(); n != 2 {
		t.Errorf("2 requests became %d", n)
	}
}

// TestARequestInMemoryIsOneWrite: header and body of a request in memory go out in one write.
func TestARequestInMemoryIsOneWrite(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"n":1}` {
			t.Errorf("the upstream got %q, %v", body, err)
		}
	}))
	defer server.Close()
	var writes atomic.Int32
	transport := NewTransport(true)
	defer transport.CloseIdleConnections()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		return countedConn{c, &writes}, err
	}
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	target := &registry.Target{Method: "POST", URL: to, Body: []byte(`{"n":1}`)}
	request := upstreamRequest(t.Context(), &Call{In: httptest.NewRequest("POST", "/v1/act", nil), RequestID: "id"}, target, "agentgw/test")
	res, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if n := writes.Load(); n != 1 {
		t.Errorf("it took %d writes", n)
	}
}

type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
