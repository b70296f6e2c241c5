package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestSendOnceTakesAnyRequest: also one that net/http would gladly send again,
// since it was made with a body that can be had twice and calls itself
// idempotent.
func TestSendOnceTakesAnyRequest(t *testing.T) {
	var seen atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if seen.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	transport := newTransport(true)
	defer transport.CloseIdleConnections()
	for i, want := range []bool{true, false} {
		r, err := http.NewRequest("POST", server.URL, bytes.NewReader([]byte(strings.Repeat("b", 100))))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "once")
		res, err := sendOnce{transport}.RoundTrip(r)
		if (err == nil) != want {
			t.Fatalf("request %d: %v", i, err)
		}
		if err == nil {
			_ = res.Body.Close()
		}
	}
	if n := seen.Load(); n != 2 {
		t.Errorf("2 requests became %d", n)
	}
}
