package hangup_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestWhatIsNoRequestIsRefused behind those that are, which are answered first and do not
// notice, however early it comes and wherever it is wrong; and nothing behind it is one.
func TestWhatIsNoRequestIsRefused(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		for _, bad := range []string{
			"\n", "G\x00", " GET / HTTP/1.1\r\nHost: g\r\n\r\n", "GET / HTTP/1.1\nHost: g\n\n", "GET / HTTP/1.1\r\nHost: g\r\n\n",
			"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: g\r\nA: b\r\n c\r\n\r\n", "GET / HTTP/1.1\r\nHost: g\r\nA: " + strings.Repeat("b", 10_000) + "\r\n c\r\n\r\n",
		} {
			for _, before := range []int{0, 1, 3} {
				for _, early := range []int{0, 1, 3, len(bad)} {
					early = min(early, len(bad))
					t.Run(fmt.Sprintf("%.20q behind %d, %d early", bad, before, early), func(t *testing.T) {
						t.Parallel()
						begun, end := make(chan bool, before), make(chan bool, before)
						w := newWorld(t, secure, func(rw http.ResponseWriter, r *http.Request) {
							_, _ = io.Copy(io.Discard, r.Body) // behind which it is watched for a hang-up
							begun <- true
							<-end
							if err := r.Context().Err(); err != nil {
								t.Errorf("%s: %v", r.URL, err)
							}
							_, _ = io.WriteString(rw, r.URL.Path)
						})
						c := w.dial(t)
						requests := ""
						for i := range before {
							requests += post(fmt.Sprint("/", i), "xyz")
						}
						answers := bufio.NewReader(c)
						c.send(t, requests+bad[:early])
						for i := range before {
							<-begun
							if i == 0 {
								eventually(t, "the server reads what came early", func() bool { return secure || w.read.Load() == int64(len(requests)+early) })
							}
							end <- true
							want(t, answers, fmt.Sprint("/", i))
						}
						_, _ = io.WriteString(c, bad[early:]+post("/hidden", ""))
						res, err := http.ReadResponse(answers, nil)
						if err != nil || res.StatusCode != http.StatusBadRequest || !res.Close {
							t.Fatal(res, err)
						}
						if rest, _ := io.ReadAll(res.Body); string(rest) != "400 Bad Request" && !strings.HasPrefix("400 Bad Request", string(rest)) {
							t.Errorf("then came %q", rest)
						}
						if len(begun) > 0 {
							t.Error("what was hidden was done")
						}
					})
				}
			}
		}
	})
}
