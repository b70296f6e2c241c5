package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestRefusalLeavesTheConnection: a refusal at any path is exactly as long as it
// says, and the connection goes on. One that was closed without a word would
// cost a client its next call, which it may not send again.
func TestRefusalLeavesTheConnection(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	for _, line := range []string{"POST /v1/act", "PUT /v1/act", "ANY /v1/act", "GET /v1/services", "GET /v1/services/none", "GET /v1/whoami", "GET /v1/receipts/none", "POST /v1/whoami", "GET /nowhere", "POST /nowhere", "ANY /nowhere"} {
		for name, header := range map[string]string{
			"without a key":     "",
			"with a wrong key":  "Authorization: Bearer nonsense\r\n",
			"with a bad header": "Authorization: Bearer " + w.keys["k"] + "\r\nX_Own: 1\r\n",
			"with a key":        "Authorization: Bearer " + w.keys["k"] + "\r\n",
		} {
			c, err := net.Dial("tcp", w.server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			answers := bufio.NewReader(c)
			for n := range 2 { // the second is the one that would be lost
				if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: gw\r\n%s\r\n", line, header); err != nil {
					t.Fatal(err)
				}
				res, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Errorf("%s %s: answer %d: %v", line, name, n+1, err)
					break
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.Close {
					t.Errorf("%s %s: %s: %v, closed: %t", line, name, res.Status, err, res.Close)
					break
				}
			}
		}
	}
}
