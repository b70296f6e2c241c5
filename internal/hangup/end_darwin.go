package hangup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// States of a connection (netinet/tcp_fsm.h) of which the first is over, and in the others the other side may still send.
const (
	closed      = 0
	synReceived = 3
	established = 4
	finWait1    = 6
	finWait2    = 9
)

// broken reports whether the connection was reset, or closed on both sides.
func broken(socket int) bool {
	info, err := unix.GetsockoptTCPConnectionInfo(socket, unix.IPPROTO_TCP, unix.TCP_CONNECTION_INFO)
	if err != nil {
		return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EINVAL)
	}
	return info.State == closed
}

// ended reports whether the other side has closed or reset the connection, or its
// sending side of it. It asks and does not wait.
func ended(socket int) bool {
	info, err := unix.GetsockoptTCPConnectionInfo(socket, unix.IPPROTO_TCP, unix.TCP_CONNECTION_INFO)
	if err != nil { // of a connection that was reset nothing more can be asked
		return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EINVAL)
	}
	switch info.State {
	case synReceived, established, finWait1, finWait2:
		return false
	}
	return true
}
