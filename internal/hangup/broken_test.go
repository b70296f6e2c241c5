package hangup_test

import (
	"net"
	"testing"

	"agentgw/internal/hangup"
)

// TestBrokenIsAReset alone: not an end in good order, and not what is still to be read.
func TestBrokenIsAReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for name, reset := range map[string]bool{"it ends its side": false, "it resets": true} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		here, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = here.Close() }()
		if _, err := c.Write([]byte("unread")); err != nil || hangup.Broken(here) {
			t.Fatalf("%s: broken before it is, %v", name, err)
		}
		there := c.(*net.TCPConn)
		if reset {
			_, _ = there.SetLinger(0), there.Close()
			eventually(t, "the reset is seen", func() bool { return hangup.Broken(here) })
			continue
		}
		_ = there.CloseWrite()
		if _, err := here.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if n, err := here.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatal(n, err)
		}
		if hangup.Broken(here) {
			t.Errorf("%s, and is said to be broken", name)
		}
	}
	if a, _ := net.Pipe(); hangup.Broken(a) {
		t.Error("of a pipe nothing can be known")
	}
}
