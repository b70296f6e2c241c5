package hangup

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// watched is a connection whose next Read of a byte is the watch, and its other end.
func watched(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	c := &conn{Conn: a}
	c.taken.Store(true) // what is sent here is no request
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	return c, b
}

// TestTheWatchEndsWhenAsMuchCameAsIsKept: what is more stays where it is, and
// nothing of what came is lost.
func TestTheWatchEndsWhenAsMuchCameAsIsKept(t *testing.T) {
	sent := make([]byte, most+1000)
	for i := range sent {
		sent[i] = byte(i % 251)
	}
	for _, first := range []int{1, 300, 5000, most - 1, most} {
		c, client := watched(t)
		go func() { // a pipe takes what is read
			_, _ = client.Write(sent[:first])
			_, _ = client.Write(sent[first:])
		}()
		got := make([]byte, len(sent))
		if n, err := c.Read(got[:1]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if len(c.early) != most-1 {
			t.Errorf("%d bytes are kept, want %d", len(c.early), most-1)
		}
		if _, err := io.ReadFull(c, got[1:]); err != nil {
			t.Fatal(err)
		}
		if string(got) != string(sent) {
			t.Error("other bytes were read than came")
		}
		if c.early != nil {
			t.Error("the buffer is kept")
		}
	}
}

// TestTheWatchIsCalledOff by a deadline in the past, whether it comes before the Read,
// while nothing comes, or behind bytes, which the next Read has.
func TestTheWatchIsCalledOff(t *testing.T) {
	past := time.Unix(1, 0)
	for name, call := range map[string]func(c *conn, client net.Conn){
		"before":    func(c *conn, _ net.Conn) { _ = c.Conn.SetReadDeadline(past) },
		"meanwhile": func(c *conn, _ net.Conn) { go func() { _ = c.SetReadDeadline(past) }() },
		"behind": func(c *conn, client net.Conn) {
			go func() { _, _ = client.Write([]byte("abc")); _ = c.SetReadDeadline(past) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, client := watched(t)
			call(c, client)
			var b [10]byte
			if n, err := c.Read(b[:1]); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(n, err)
			}
			if name != "behind" {
				return
			}
			if n, err := c.Read(b[:]); string(b[:n]) != "abc" || err != nil {
				t.Errorf("%q, %v", b[:n], err)
			}
		})
	}
}

// TestNoOtherReadIsTheWatch: not one with room for more, not a second one, and none
// under a deadline.
func TestNoOtherReadIsTheWatch(t *testing.T) {
	c, client := watched(t)
	go func() { _, _ = client.Write([]byte("abcd")) }()
	var b [2]byte
	for i, room := range []int{2, 1, 1} {
		if i == 2 {
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		}
		if n, err := c.Read(b[:room]); n != room || err != nil {
			t.Fatal(i, n, err)
		}
	}
}
