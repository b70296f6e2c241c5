// Command wspeer is github.com/coder/websocket as a client, and as a service where the
// first argument is "serve". See interop/websocket/session.mjs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

var (
	sizes   = []int{0, 1, 125, 126, 127, 1000, 65535, 65536, 70000}
	letters = []rune("agßτ日🙂 ")
)

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("http://" + l.Addr().String())
		server := &http.Server{Handler: http.HandlerFunc(serve), ReadHeaderTimeout: 10 * time.Second}
		log.Fatal(server.Serve(l))
	}
	if len(os.Args) != 4 {
		log.Fatal("wspeer serve, or wspeer URL KEY SESSIONS")
	}
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	client(os.Args[1], os.Args[2], count)
}

func serve(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(4 << 20)
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil {
			return
		}
		code, closes := strings.CutPrefix(string(message), "close ")
		switch {
		case kind == websocket.MessageText && closes:
			n, _ := strconv.Atoi(code)
			_ = c.Close(websocket.StatusCode(n), "as you wish")
			return
		case kind == websocket.MessageText && string(message) == "fragments":
			err = fragments(r.Context(), c, "a", "b", "c")
		default:
			err = c.Write(r.Context(), kind, message)
		}
		if err != nil {
			return
		}
	}
}

func fragments(ctx context.Context, c *websocket.Conn, parts ...string) error {
	w, err := c.Writer(ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := w.Write([]byte(p)); err != nil {
			return err
		}
	}
	return w.Close()
}

func text(n, i int) string {
	var b strings.Builder
	for k := range n {
		b.WriteRune(letters[(k+i)%len(letters)])
	}
	return b.String()
}

func binary(n, i int) string {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(k*7 + i)
	}
	return string(b)
}

func session(url, key string, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	mode := websocket.CompressionDisabled
	if i%3 == 0 {
		mode = websocket.CompressionNoContextTakeover
	}
	c, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"x", "echo"}, CompressionMode: mode, HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(4 << 20)
	if c.Subprotocol() != "echo" || res.Header.Get("Sec-WebSocket-Extensions") != "" {
		return fmt.Errorf("subprotocol %q, extensions %q", c.Subprotocol(), res.Header.Get("Sec-WebSocket-Extensions"))
	}
	want := func(what, want string) error {
		_, got, err := c.Read(ctx)
		if err == nil && string(got) != want {
			err = fmt.Errorf("%s: %d bytes %.40q, want %d bytes %.40q", what, len(got), got, len(want), want)
		}
		return err
	}
	size := sizes[(i+4)%len(sizes)]
	if i%100 == 99 {
		size = 1 << 20
	}
	long, raw := text(sizes[i%len(sizes)], i), binary(size, i)
	steps := []func() error{
		func() error { return c.Write(ctx, websocket.MessageText, []byte(long)) }, func() error { return want("text", long) },
		func() error { return c.Write(ctx, websocket.MessageBinary, []byte(raw)) }, func() error { return want("binary", raw) },
		func() error { return fragments(ctx, c, "fra", "", "g🙂", "ments") },
		func() error { return want("fragments", "frag🙂ments") },
		func() error { return ping(ctx, c) },
		func() error { return c.Write(ctx, websocket.MessageText, []byte("fragments")) }, func() error { return want("a message in fragments", "abc") },
	}
	for k := range 5 {
		steps = append(steps, func() error { return c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, "pipelined %d", k)) })
	}
	for k := range 5 {
		steps = append(steps, func() error { return want("pipelined", fmt.Sprintf("pipelined %d", k)) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	code := []int{1000, 3000 + i%1000, 4999}[i%3]
	if i%2 == 0 {
		reason := fmt.Sprintf("reason %d ß", i)
		if i%5 == 0 {
			reason = ""
		}
		return c.Close(websocket.StatusCode(code), reason) // waits for the answer, which has to be a close
	}
	if err := c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, "close %d", code)); err != nil {
		return err
	}
	_, _, err = c.Read(ctx)
	var closed websocket.CloseError
	if !errors.As(err, &closed) || int(closed.Code) != code || closed.Reason != "as you wish" {
		return fmt.Errorf("the service's close: %w, want %d", err, code)
	}
	return nil
}

// ping waits for the pong, which a reader has to take.
func ping(ctx context.Context, c *websocket.Conn) error {
	type read struct {
		message []byte
		err     error
	}
	got := make(chan read, 1)
	go func() { _, m, err := c.Read(ctx); got <- read{m, err} }()
	if err := c.Ping(ctx); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	if err := c.Write(ctx, websocket.MessageText, []byte("behind a ping")); err != nil {
		return err
	}
	r := <-got
	if r.err != nil || string(r.message) != "behind a ping" {
		return fmt.Errorf("behind a ping: %q, %w", r.message, r.err)
	}
	return nil
}

func client(url, key string, count int) {
	var mu sync.Mutex
	next, done := 0, 0
	wrong := []string{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= count {
					return
				}
				err := session(url, key, i)
				mu.Lock()
				if err == nil {
					done++
				} else {
					wrong = append(wrong, fmt.Sprintf("session %d: %v", i, err))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"sessions": done, "wrong": len(wrong), "first": wrong[:min(5, len(wrong))]})
}
