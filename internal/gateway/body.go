package gateway

import (
	"errors"
	"io"
	"net/http"
)

// bodiless reports whether an answer ends with its header (RFC 9110, 6.4.1).
func bodiless(res *http.Response) bool {
	return res.Request.Method == http.MethodHead || res.StatusCode == http.StatusNoContent ||
		res.StatusCode == http.StatusNotModified || res.ContentLength == 0 && len(res.Trailer) == 0
}

// body reads an upstream's answer. It withholds the bytes that complete the
// answer until finish has made the outcome durable: of a bounded answer those
// are its last bytes, of any other the terminator, which the server writes only
// when reading has ended.
type body struct {
	res      *http.Response
	left     int64 // bytes to come; -1 where that is not known
	read     int64 // bytes so far
	patience *patience
	border   *running      // of a stream of events; else nil
	count    func(n int64) // the bytes that rules count; nil where none does
	echoes   *echoes
	finish   func() error
	ended    bool
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
	n, err := b.res.Body.Read(p)
	b.read += int64(n)
	if b.count != nil {
		b.count(int64(n)) // before the end, which whoever waits for it may follow with a call
	}
	b.patience.heard()
	if b.border != nil && n > 0 {
		b.border.saw(p[:n])
	}
	if b.left >= 0 {
		b.left -= int64(n)
	}
	if errors.Is(err, io.EOF) {
		keepTrailer(b.res.Trailer) // it is known now, and may hold what was not announced
		b.echoes.trailer(b.res.Trailer)
	}
	if b.left == 0 || errors.Is(err, io.EOF) {
		if failed := b.end(); failed != nil {
			return 0, failed
		}
	}
	return n, err
}
