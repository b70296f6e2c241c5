package hangup_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
)

// many is n, or ten times as many in full drills.
func many(n int) int {
	if os.Getenv("DRILLS") == "full" {
		return 10 * n
	}
	return n
}

func echo(rw http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	rw.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = rw.Write(b)
}

// TestAConnectionServesManyRequests, one after another.
func TestAConnectionServesManyRequests(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		w := newWorld(t, secure, echo)
		c := w.dial(t)
		answers := bufio.NewReader(c)
		for i := range many(1000) {
			c.send(t, post("/", fmt.Sprint(i)))
			want(t, answers, fmt.Sprint(i))
		}
	})
}

// TestRequestsInARowAreAnsweredInOrder, byte for byte, however the bytes come: while
// the first is held, while answers are on their way, and more of them than are kept.
func TestRequestsInARowAreAnsweredInOrder(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		for seed := range uint64(many(4)) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, 0))
				begun, end := make(chan bool, 1), make(chan bool)
				w := newWorld(t, secure, func(rw http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if r.URL.Path == "/held" {
						begun <- true
						<-end
					}
					_, _ = rw.Write(body)
				})
				bodies, all := []string{"first"}, ""
				for i := range 100 {
					body := fmt.Sprint(i, strings.Repeat("x", random.IntN(1+random.IntN(3000))))
					bodies = append(bodies, body)
					all += post("/", body)
				}
				large := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
				bodies, all = append(bodies, large, "last"), all+post("/", large)+post("/", "last")
				c := w.dial(t)
				c.send(t, post("/held", "first"))
				<-begun
				go func() {
					for len(all) > 0 {
						n := min(len(all), 1+random.IntN(1+random.IntN(20000)))
						if _, err := io.WriteString(c, all[:n]); err != nil {
							t.Error(err)
							return
						}
						all = all[n:]
					}
				}()
				before := int64(len(post("/held", "first")))
				eventually(t, "the server has read as much as it keeps", func() bool { return w.read.Load() >= before+256<<10 })
				end <- true
				answers := bufio.NewReader(c)
				for _, body := range bodies {
					want(t, answers, body)
				}
			})
		}
	})
}

// TestABodyMayComeAByteAtATime, also where nothing bounds how long it takes.
func TestABodyMayComeAByteAtATime(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		w := newWorld(t, secure, echo)
		c := w.dial(t)
		answers := bufio.NewReader(c)
		for _, request := range []string{post("/", "abc"), "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\nX-End: x\r\n\r\n"} {
			for _, b := range []byte(request) {
				n := w.read.Load()
				c.send(t, string(b))
				eventually(t, "the byte is read", func() bool { return w.read.Load() > n })
			}
			want(t, answers, "abc")
		}
	})
}
