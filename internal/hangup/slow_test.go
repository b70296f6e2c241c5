package hangup_test

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// TestAHeadIsWaitedForSoLong: a client that sends nothing, or a piece of a head or of
// HTTP/2's preface, or bytes of them one by one, is given up after ReadHeaderTimeout,
// also where HTTP/2 may begin in clear text (CVE-2026-56853).
func TestAHeadIsWaitedForSoLong(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		const patience = 500 * time.Millisecond
		served := make(chan string, 1)
		t.Cleanup(func() { // when the parallel ones are over
			if len(served) > 0 {
				t.Errorf("%s was served", <-served)
			}
		})
		w := newWorld(t, secure, func(_ http.ResponseWriter, r *http.Request) { served <- r.URL.Path }, func(s *http.Server) {
			s.ReadHeaderTimeout = patience
			s.Protocols = new(http.Protocols)
			s.Protocols.SetHTTP1(true)
			s.Protocols.SetUnencryptedHTTP2(true)
		})
		for name, begin := range map[string]string{
			"nothing": "", "a byte": "P", "a first line": "GET / HTTP/1.1\r\n", "half of a field": "GET / HTTP/1.1\r\nHost: g\r\nA: ",
			"half of a preface": "PRI * HTTP/2.0\r",
		} {
			for _, drip := range []string{"", "x"} {
				t.Run(name+drip, func(t *testing.T) {
					t.Parallel()
					began := time.Now()
					c := w.dial(t)
					c.send(t, begin)
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						_, _ = io.Copy(io.Discard, c)
					}()
					for tick := time.NewTicker(patience / 20); ; {
						select {
						case <-tick.C:
							_, _ = io.WriteString(c, drip) // the pace of a slow client is what this is about
							if time.Since(began) > 20*time.Second {
								t.Fatal("it is still waited for")
							}
							continue
						case <-ended:
						}
						return
					}
				})
			}
		}
	})
}
