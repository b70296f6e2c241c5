package gateway

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentgw/internal/hangup"
)

// TestAnEndThatIsAnsweredIsNoBreak: a side has said all and closed, and a word that it does
// not wait for is answered by a reset before its last bytes have been read. What it said is
// carried, and it has ended in good order; a side that resets has not.
func TestAnEndThatIsAnsweredIsNoBreak(t *testing.T) {
	for name, resets := range map[string]bool{"it closes": false, "it resets": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			there, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			here, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = here.Close() }()
			say := func(c net.Conn, text string) {
				if _, err := c.Write([]byte(text)); err != nil {
					t.Error(err)
				}
			}
			say(there, "a")
			var carried atomic.Int64
			got := ""
			read, wrote := flowOf(100).carry(here, &carried, func(b []byte) (int, error) {
				if got += string(b); got == "a" { // the other side takes its time, and meanwhile:
					if !resets {
						say(there, "b")
					} else if err := there.(*net.TCPConn).SetLinger(0); err != nil {
						t.Error(err)
					}
					_ = there.Close()
					if !resets {
						awaitFin(t, here) // or the reset would come first
						say(here, "goodbye")
					}
					for naps := 0; !hangup.Broken(here); naps++ {
						if naps > 30_000 {
							t.Fatal("no reset comes")
						}
						time.Sleep(time.Millisecond)
					}
				}
				return len(b), nil
			})
			if want := map[bool]string{false: "ab", true: "a"}[resets]; got != want || wrote != nil || (read != nil) != resets || carried.Load() != int64(len(want)) {
				t.Errorf("carried %q, and ended by %v, %v", got, read, wrote)
			}
		})
	}
}

// awaitFin waits until the other side of c has ended it.
func awaitFin(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	for naps := 0; !ended; naps++ {
		if naps > 30_000 {
			t.Fatal("no end comes")
		}
		time.Sleep(time.Millisecond)
		_ = raw.Control(func(fd uintptr) {
			asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(asked, 0)
			ended = err == nil && n > 0 && asked[0].Revents&unix.POLLRDHUP != 0
		})
	}
}
