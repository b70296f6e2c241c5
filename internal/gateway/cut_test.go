package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/config"
)

// An upstream may answer before it has read the request. An http.Server in
// front of an http.Transport then cuts some of these answers: the server closes
// the request's body when the answer begins, the transport's write loop, which
// is still reading it, takes that for a failure, and closes the connection from
// which the answer comes (golang/go#40747). The gateway has read a request to
// its end before it calls anybody, and sends it from memory.

// bare is a ReverseProxy and nothing else, the control of these tests. Held, it
// reads a request to its end first, but sends it with the agent's own body
// behind: half of the remedy.
func bare(t *testing.T, upstream string, held bool) string {
	t.Helper()
	to, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = "/post"
			if held {
				whole, _ := io.ReadAll(r.In.Body)
				r.Out.Body = io.NopCloser(io.MultiReader(bytes.NewReader(whole), r.In.Body))
			}
		},
		Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
	})
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(s.Close)
	return s.URL
}

// early is an upstream that begins to answer when it has the head of a request
// and reads the rest when told.
type early struct{ called, told chan struct{} }

func (e *early) serve(rw http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(rw).EnableFullDuplex()
	rw.Header().Set("Content-Type", "text/event-stream")
	send(rw, event)
	close(e.called)
	select {
	case <-e.told:
	case <-r.Context().Done():
		return
	}
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n < r.ContentLength {
		panic(http.ErrAbortHandler)
	}
	select {
	case <-r.Context().Done():
	case <-time.After(100 * time.Millisecond): // for the other side to find fault with its request
	}
	send(rw, "data: 2\n\n")
}

// TestAnswerBeforeTheRequestIsSent: a request so long that most of it waits in
// the gateway when the answer begins. A write loop that is tied to the agent's
// request does not outlive that.
func TestAnswerBeforeTheRequestIsSent(t *testing.T) {
	const size = 8 << 20 // more than the kernel takes from a writer whose peer does not read
	for _, control := range []bool{false, true} {
		e := &early{called: make(chan struct{}), told: make(chan struct{})}
		w := setup{settings: func(s *config.Settings) { s.MaxRequestBody = 2 * size }}.world(t, e.serve, wide("k"))
		caller := w.caller("k")
		caller.transport.DisableKeepAlives = false // the server spares the body of a request that is the last
		if control {
			caller.url = bare(t, w.upstream.URL, true)
		}
		got, err := caller.call("post", `{"text":"`+strings.Repeat("x", size)+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		defer got.cancel()
		if err := got.expect(event); err != nil {
			t.Fatal(err)
		}
		close(e.told)
		e.judge(t, got, control)
	}
}

// TestAnswerWhileTheRequestArrives: an agent that sends its request bit by bit.
func TestAnswerWhileTheRequestArrives(t *testing.T) {
	for _, control := range []bool{false, true} {
		e := &early{called: make(chan struct{}), told: make(chan struct{})}
		w := newWorld(t, e.serve, wide("k"))
		caller := w.caller("k")
		caller.transport.DisableKeepAlives = false // the server spares the body of a request that is the last
		if control {
			caller.url = bare(t, w.upstream.URL, false)
		}
		close(e.told)
		got, err := caller.send(&bits{e: e, body: `{"service":"tools","action":"post","params":{"text":"` + strings.Repeat("x", 200<<10) + `"}}`})
		if err != nil && control {
			continue // cut, at the first event already
		}
		if err != nil {
			t.Fatal(err)
		}
		defer got.cancel()
		if err := got.expect(event); err != nil && !control {
			t.Fatal(err)
		}
		e.judge(t, got, control)
	}
}

func (e *early) judge(t *testing.T, got *open, control bool) {
	t.Helper()
	more, err := got.rest()
	switch {
	case control && !cut(err):
		t.Errorf("the control is not cut (%q, %v): this test shows nothing", more, err)
	case !control && (err != nil || more != "data: 2\n\n"):
		t.Errorf("after the first event: %q, %v; want the second and a clean end", more, err)
	}
}

// bits is a body that comes in twenty parts. After the first it waits for the
// upstream to be called, which a gateway that reads first does not do.
type bits struct {
	e    *early
	body string
	at   int
}

func (b *bits) Len() int { return len(b.body) }

func (b *bits) Read(p []byte) (int, error) {
	if b.at == len(b.body) {
		return 0, io.EOF
	}
	if b.at > 0 {
		select {
		case <-b.e.called:
			<-time.After(time.Millisecond) // the answer is on its way
		case <-time.After(20 * time.Millisecond):
		}
	}
	n := copy(p, b.body[b.at:min(len(b.body), b.at+len(b.body)/20+1)])
	b.at += n
	return n, nil
}

// TestNoAnswerIsCut calls an upstream that answers at once from 64 clients, and
// wants all answers whole: in full, ten thousand streams and a hundred thousand
// answers of 64 KiB, where the control has some that are not. A short load may
// spare the control, so it is left out there.
func TestNoAnswerIsCut(t *testing.T) {
	const events = 5
	long := strings.Repeat("x", 64<<10)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex() // or the server would read the request first
		defer func() { _, _ = io.Copy(io.Discard, r.Body) }()
		if r.Header.Get("Accept") == "text/event-stream" {
			rw.Header().Set("Content-Type", "text/event-stream")
			for range events {
				send(rw, event)
			}
			return
		}
		_, _ = io.WriteString(rw, long)
	}, wide("k"))
	control := bare(t, w.upstream.URL, false)
	for _, c := range []struct {
		name, accept string
		calls        int
		want         string
	}{
		{"streams", "text/event-stream", drills(100, 10_000), strings.Repeat(event, events)},
		{"answers of 64 KiB", "application/json", drills(100, 100_000), long},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.clock.Advance(time.Hour) // the buckets are full
			began := time.Now()
			cuts, err := load(w.server.URL, w.keys["k"], c.accept, c.want, c.calls)
			t.Logf("the gateway: %d cut of %d in %v", cuts, c.calls, time.Since(began).Round(time.Millisecond))
			if err != nil {
				t.Errorf("%d of %d were not whole, one of them: %v", cuts, c.calls, err)
			}
			if drills(0, 1) == 0 {
				return
			}
			began = time.Now()
			cuts, err = load(control, w.keys["k"], c.accept, c.want, c.calls)
			t.Logf("a bare ReverseProxy: %d cut of %d in %v, one of them: %v", cuts, c.calls, time.Since(began).Round(time.Millisecond), err)
			if cuts == 0 {
				t.Error("the control is not cut: this load shows nothing")
			}
		})
	}
}

// load makes calls from 64 clients, and returns how many answers were not want
// and one reason.
func load(url, key, accept, want string, calls int) (cuts int64, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var left, bad atomic.Int64
	left.Store(int64(calls))
	reasons := make([]error, 64)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := one(transport, url, key, accept, want); err != nil {
					bad.Add(1)
					reasons[i] = err
				}
			}
		})
	}
	all.Wait()
	i := slices.IndexFunc(reasons, func(err error) bool { return err != nil })
	if i < 0 {
		return 0, nil
	}
	return bad.Load(), reasons[i]
}

func one(transport http.RoundTripper, url, key, accept, want string) error {
	r, err := http.NewRequest("POST", url+"/v1/act", strings.NewReader(`{"service":"tools","action":"post","params":{"text":"`+strings.Repeat("y", 40_000)+`"}}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || string(got) != want {
		return fmt.Errorf("status %d, %d of %d bytes: %v", res.StatusCode, len(got), len(want), err)
	}
	return nil
}
