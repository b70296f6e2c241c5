package hangup

import "golang.org/x/sys/unix"

// ended reports whether the other side has closed or reset the connection, or its
// sending side of it. It asks and does not wait.
func ended(socket int) bool {
	return tells(socket, unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR)
}

// broken reports whether the connection was reset, or closed on both sides.
func broken(socket int) bool { return tells(socket, unix.POLLHUP|unix.POLLERR) }

func tells(socket int, ends int16) bool {
	asked := []unix.PollFd{{Fd: int32(socket), Events: ends}}
	n, err := unix.Poll(asked, 0)
	return err == nil && n > 0 && asked[0].Revents&ends != 0
}
