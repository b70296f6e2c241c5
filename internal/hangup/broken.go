package hangup

import (
	"net"
	"syscall"
)

// Broken reports whether the other side has reset c, or the network has, as far as TCP tells
// without reading: for who cannot read, as there is nowhere to put what comes. An end in good
// order is none; nor is that of which nothing can be known, such as of a connection that is
// not of TCP. It asks and does not wait. Safe beside a Read or a Write.
func Broken(c net.Conn) bool {
	for {
		above, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = above.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	_ = raw.Control(func(fd uintptr) { is = broken(int(fd)) }) // of what is closed here it is not asked
	return is
}
