package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// upload is the body of a request on its way to the service, read while it is sent.
// The transport reads it from a goroutine of its own, and maybe still when the answer
// has come and gone; net/http must have nobody read when its handler returns. So stop
// comes last: it ends a Read that waits for the agent, and whatever is read afterwards fails.
//
// The answer may begin before the request has ended. net/http would then read the rest
// first, to have it out of the way for the next request, unless the connection has none:
// so such an answer is the last of its connection (see answer.commit). Full duplex is not
// asked for: it takes what is left of a body for the next request, and a body that
// net/http reads to its end after the handler makes it panic (golang/go#68560).
type upload struct {
	body     io.Reader
	control  *http.ResponseController
	stall    time.Duration
	limit    int64 // 0: none
	patience *patience
	in       *http.Request
	trailer  http.Header   // what goes on behind the body, once that has ended
	count    func(n int64) // what rules count of a body of no declared length; nil: nothing
	asks     *expectation  // before anything is read; nil: it is wanted

	n atomic.Int64 // bytes read

	reading sync.Mutex // held while somebody is waited for
	asked   bool
	failed  error // why reading ended; io.EOF: with the body

	setting sync.Mutex // of deadlines
	over    bool
}

// Why an upload ended before its body did.
var (
	errOverLimit  = errors.New("the body is larger than AGENTGATE_MAX_REQUEST_BODY")
	errUploadOver = errors.New("nobody wants the rest of this request")
)

func newUpload(r *http.Request, out *answer, limit int64) *upload {
	u := &upload{body: r.Body, in: r, control: out.control, stall: out.stall.limit, limit: limit}
	if r.ProtoAtLeast(1, 1) && httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue") {
		u.asks = newExpectation()
	}
	return u
}

// start has the answer be written while the request is read.
func (u *upload) start(out *answer, r *http.Request) {
	if r.ProtoMajor == 1 { // over HTTP/2 streams end apart
		out.upload = u
	}
}

// ended reports whether the body was read to its end.
func (u *upload) ended() bool {
	if !u.reading.TryLock() {
		return false
	}
	defer u.reading.Unlock()
	return errors.Is(u.failed, io.EOF)
}

// Read implements io.Reader. While it waits for the agent nobody waits for the service.
func (u *upload) Read(p []byte) (int, error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.failed != nil {
		return 0, u.failed
	}
	if u.asks != nil && !u.asked {
		u.asked = true
		if !u.asks.await() {
			return 0, errUploadOver
		}
	}
	if !u.await() {
		return 0, errUploadOver
	}
	u.patience.hold()
	n, err := u.body.Read(p)
	u.patience.goOn()
	total := u.n.Add(int64(n))
	if u.count != nil {
		u.count(int64(n))
	}
	if u.limit > 0 && total > u.limit {
		n, err = 0, errOverLimit
	}
	switch {
	case errors.Is(err, io.EOF):
		passTrailer(u.trailer, u.in.Trailer)
	case errors.Is(err, os.ErrDeadlineExceeded) && u.stopped():
		err = errUploadOver
	}
	u.failed = err
	return n, err
}

// await bounds how long the agent may give no byte, unless stop was called.
func (u *upload) await() bool {
	u.setting.Lock()
	defer u.setting.Unlock()
	if u.over {
		return false
	}
	if u.stall > 0 {
		_ = u.control.SetReadDeadline(deadline(u.stall))
	}
	return true
}

// Close is the transport's. The body is net/http's to close.
func (u *upload) Close() error { return nil }

// stop ends the upload, and returns when nobody reads any more. What of the body was
// not read by now is left to net/http, which closes the connection over it.
func (u *upload) stop() {
	u.setting.Lock()
	if u.asks != nil && !u.over {
		close(u.asks.over)
	}
	u.over = true
	if u.reading.TryLock() { // nobody waits
		u.reading.Unlock()
	} else {
		_ = u.control.SetReadDeadline(time.Unix(1, 0))
	}
	u.setting.Unlock()
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.failed == nil {
		u.failed = errUploadOver
	}
}

func (u *upload) stopped() bool {
	u.setting.Lock()
	defer u.setting.Unlock()
	return u.over
}

// broke says why the agent's request did not come to its end, if that is why; nil: it
// did, or goes on, or nobody wanted the rest. A nil upload broke nothing.
func (u *upload) broke() error {
	if u == nil {
		return nil
	}
	if !u.reading.TryLock() {
		return nil // somebody is waited for
	}
	defer u.reading.Unlock()
	if errors.Is(u.failed, io.EOF) || errors.Is(u.failed, errUploadOver) {
		return nil
	}
	return u.failed
}
