package gateway

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// bodiless reports whether an answer ends with its header (RFC 9110, 6.4.1).
func bodiless(res *http.Response) bool {
	return res.Request.Method == http.MethodHead || res.StatusCode == http.StatusNoContent ||
		res.StatusCode == http.StatusNotModified || res.ContentLength == 0
}

// body is an upstream's body on its way to the agent. It withholds the bytes
// that complete the answer until finish has made the outcome durable: of a
// bounded answer those are its last bytes, of any other the terminator, which
// the server writes only when reading has ended.
type body struct {
	io.ReadCloser
	res    *http.Response
	left   int64 // bytes to come; -1 where that is not known
	read   int64 // bytes so far
	finish func() error
	ended  bool
	idle   time.Duration
	timer  timer
	old    timer
	border *running
}

type timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

func (b *body) end() error {
	if b.ended {
		return nil
	}
	b.ended = true
	return b.finish()
}

func (b *body) Read(p []byte) (int, error) {
	if b.border != nil && b.border.leave() {
		return 0, errShutdown
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.timer != nil {
		b.timer.Reset(b.idle)
	}
	if b.border != nil && n > 0 {
		b.border.saw(p[:n])
	}
	if b.left >= 0 {
		b.left -= int64(n)
	}
	if errors.Is(err, io.EOF) {
		keepTrailer(b.res.Trailer) // it is known now, and may hold what was not announced
	}
	if b.left == 0 || errors.Is(err, io.EOF) {
		if failed := b.end(); failed != nil {
			return 0, failed
		}
	}
	return n, err
}

func (b *body) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.old != nil {
		b.old.Stop()
	}
	return b.ReadCloser.Close()
}
