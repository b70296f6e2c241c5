package hangup_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// hangUps are the ways in which a client may go.
var hangUps = map[string]func(t *testing.T, c client){
	"it closes": func(t *testing.T, c client) {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	},
	"it is killed": func(t *testing.T, c client) {
		if err := c.tcp.Close(); err != nil {
			t.Fatal(err)
		}
	},
	"it resets": func(t *testing.T, c client) {
		if err := c.tcp.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		if err := c.tcp.Close(); err != nil {
			t.Fatal(err)
		}
	},
	// By TCP, or by TLS alone, as a client does that waits for the other side's end.
	halfClosed: func(t *testing.T, c client) {
		if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	},
}

const halfClosed = "it closes its sending side"

// early are things that a client may send behind a request.
var early = map[string][]string{
	"nothing":                nil,
	"a line end":             {"\r\n"},
	"a byte, and another":    {"P", "O"},
	"a request":              {post("/next", "x")},
	"a piece of a request":   {"GET /ne"},
	"256 KiB but for a byte": {strings.Repeat("x", 256<<10-1)},
	"as much as is kept":     {strings.Repeat("x", 256<<10)},
	"more than is kept":      {strings.Repeat("x", 256<<10), strings.Repeat("y", 20<<10)},
}

// TestAHangUpIsSeen whatever came behind the request, once the server has read of it.
func TestAHangUpIsSeen(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		for what, pieces := range early {
			for how, hangUp := range hangUps {
				if secure && how == halfClosed && len(strings.Join(pieces, "")) >= 256<<10 { // an end that only reading tells
					continue
				}
				for _, request := range []string{post("/", "body"), "GET / HTTP/1.1\r\nHost: g\r\n\r\n", "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"} {
					t.Run(what+", then "+how, func(t *testing.T) {
						t.Parallel()
						begun, gone := make(chan bool), make(chan bool)
						w := newWorld(t, secure, func(_ http.ResponseWriter, r *http.Request) {
							_, _ = io.Copy(io.Discard, r.Body)
							close(begun)
							<-r.Context().Done()
							close(gone)
						})
						c := w.dial(t)
						c.send(t, request)
						<-begun
						sent := 0
						for _, piece := range pieces {
							n := w.read.Load()
							c.send(t, piece)
							if sent += len(piece); sent <= 256<<10 { // what is more stays where it is
								eventually(t, "the server reads what came early", func() bool { return w.read.Load() >= n+int64(len(piece)) })
							}
						}
						select {
						case <-gone:
							t.Fatal("what came early ended the request")
						default:
						}
						hangUp(t, c)
						select {
						case <-gone:
						case <-time.After(20 * time.Second):
							t.Fatal("nobody saw it")
						}
					})
				}
			}
		}
	})
}

// TestTheServerMaySpeakToWhoSentEarly: what came early ends nothing, and the answer
// comes; so does the next one.
func TestTheServerMaySpeakToWhoSentEarly(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		begun, end := make(chan bool, 1), make(chan bool)
		w := newWorld(t, secure, func(rw http.ResponseWriter, r *http.Request) {
			begun <- true
			<-end
			if err := r.Context().Err(); err != nil {
				t.Errorf("%s: %v", r.URL, err)
			}
			_, _ = io.WriteString(rw, r.URL.Path)
		})
		c := w.dial(t)
		answers := bufio.NewReader(c)
		c.send(t, post("/1", "")) // behind which a line end is let pass
		for i, piece := range []string{"\r\nGET /2 HTTP/1.1\r\nHost: g\r\n\r\nGET /3 HTTP/1.1\r\n", "Host: g\r\n\r\n", ""} {
			<-begun
			n := w.read.Load()
			c.send(t, piece)
			eventually(t, "the server reads what came early", func() bool { return w.read.Load() >= n+int64(len(piece)) })
			end <- true
			want(t, answers, fmt.Sprint("/", i+1))
		}
	})
}

// want reads an answer and holds that its body is the one wanted.
func want(t *testing.T, answers *bufio.Reader, body string) {
	t.Helper()
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || string(got) != body {
		t.Fatalf("%d bytes %.40q, %v; want %d bytes %.40q", len(got), got, err, len(body), body)
	}
}

// TestWhoTakesTheConnectionOver reads what comes as it comes, also a byte by itself.
func TestWhoTakesTheConnectionOver(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		w := newWorld(t, secure, func(rw http.ResponseWriter, _ *http.Request) {
			c, both, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, "yours\n")
			go func() { _ = c.SetDeadline(time.Now().Add(time.Minute)) }() // while somebody reads
			var b [1]byte
			for range 3 {
				if _, err := both.Read(b[:]); err == nil {
					_, _ = c.Write(b[:])
				}
			}
		})
		c := w.dial(t)
		c.send(t, "GET / HTTP/1.1\r\nHost: g\r\n\r\n\x16\n") // and what is none of HTTP
		said := bufio.NewReader(c)
		if line, err := said.ReadString('\n'); line != "yours\n" {
			t.Fatal(line, err)
		}
		c.send(t, "x")
		var got [3]byte
		if _, err := io.ReadFull(said, got[:]); string(got[:]) != "\x16\nx" {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

// TestTheRestOfABodyIsAwaited: the end of what a server sends to a client that is still
// sending is seen by it before the connection is closed under it.
func TestTheRestOfABodyIsAwaited(t *testing.T) {
	ways(t, func(t *testing.T, secure bool) {
		closed := make(chan bool)
		w := newWorld(t, secure, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(http.MaxBytesReader(rw, r.Body, 10))
			rw.WriteHeader(http.StatusRequestEntityTooLarge)
		}, func(s *http.Server) {
			s.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateClosed {
					close(closed)
				}
			}
		})
		c := w.dial(t)
		c.send(t, "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 1000))
		all, err := io.ReadAll(c)
		if !strings.HasPrefix(string(all), "HTTP/1.1 413 ") || err != nil {
			t.Fatalf("%q, %v", all, err)
		}
		select {
		case <-closed:
			t.Error("the connection was closed before its end was seen")
		default:
		}
		<-closed
	})
}
