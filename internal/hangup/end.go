package hangup

import (
	"crypto/tls"
	"io"
	"net"
	"syscall"
)

// awaitEnd waits, without reading, until the other side has ended c, and returns io.EOF
// then; or what else ended the wait, such as a deadline. It returns nil at once if of c,
// which may be TLS's, nothing can be known but by reading.
//
// The runtime wakes who waits to read at every change of a socket, an end that comes
// behind bytes that nobody has read among them.
func awaitEnd(c net.Conn) error {
	if s, ok := c.(*tls.Conn); ok {
		c = s.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Read(func(fd uintptr) bool { return ended(int(fd)) }); err != nil {
		return err
	}
	return io.EOF
}
