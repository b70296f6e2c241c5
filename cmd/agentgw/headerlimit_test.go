package main

import (
	"net/http"
	"strings"
	"testing"
)

// TestRequestHeaderLimit: an agent's header of 64 KiB is read, one far over it
// is refused as such.
func TestRequestHeaderLimit(t *testing.T) {
	s, _ := startWith(t, "127.0.0.1", "version: 1\n")
	for size, want := range map[int]int{60 << 10: 200, 80 << 10: http.StatusRequestHeaderFieldsTooLarge, 1 << 20: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequest("GET", "http://"+s.agentsListener.Addr().String()+"/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Agentgate-Key", s.firstKey.Reveal())
		r.Header.Set("X-Fill", strings.Repeat("f", size))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d bytes: %s, want %d", size, res.Status, want)
		}
	}
}
