package gateway

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/redact"
)

// TestPatience: each line is what happens to a call, at which second, and why it
// is ended by the last one, if it is.
func TestPatience(t *testing.T) {
	const s = time.Second
	type step struct {
		at time.Duration
		do func(p *patience, now time.Time)
	}
	await := func(d time.Duration) func(*patience, time.Time) {
		return func(p *patience, now time.Time) { p.await(now, d, errFirstByte) }
	}
	follow := func(idle, most time.Duration) func(*patience, time.Time) {
		return func(p *patience, now time.Time) { p.follow(now, idle, most) }
	}
	heard := func(p *patience, _ time.Time) { p.heard() }
	stop := func(p *patience, _ time.Time) { p.stop(); p.ring() } // which may be on its way
	nothing := func(*patience, time.Time) {}
	for name, c := range map[string]struct {
		steps []step
		want  error
	}{
		"no bound":                            {[]step{{0, await(0)}, {s, follow(0, 0)}, {2 * s, heard}, {9999 * s, nothing}}, nil},
		"not yet":                             {[]step{{0, await(30 * s)}, {30*s - 1, nothing}}, nil},
		"no answer":                           {[]step{{0, await(30 * s)}, {30 * s, nothing}}, errFirstByte},
		"an answer in time":                   {[]step{{0, await(30 * s)}, {29 * s, follow(0, 0)}, {99 * s, nothing}}, nil},
		"silence that is longer":              {[]step{{0, await(30 * s)}, {1 * s, follow(300*s, 0)}, {301*s - 1, nothing}}, nil},
		"and too long":                        {[]step{{0, await(30 * s)}, {1 * s, follow(300*s, 0)}, {301 * s, nothing}}, errStreamIdle},
		"silence that is shorter":             {[]step{{0, await(30 * s)}, {1 * s, follow(5*s, 0)}, {6 * s, nothing}}, errStreamIdle},
		"silence alone":                       {[]step{{0, await(0)}, {1 * s, follow(5*s, 0)}, {6 * s, nothing}}, errStreamIdle},
		"something heard":                     {[]step{{0, await(0)}, {0, follow(5*s, 0)}, {4 * s, heard}, {9*s - 1, nothing}}, nil},
		"and then nothing":                    {[]step{{0, await(0)}, {0, follow(5*s, 0)}, {4 * s, heard}, {9 * s, nothing}}, errStreamIdle},
		"too old, whatever is heard":          {[]step{{0, await(0)}, {0, follow(5*s, 7*s)}, {4 * s, heard}, {6 * s, heard}, {7 * s, nothing}}, errStreamMax},
		"too old, before silence is too long": {[]step{{0, await(30 * s)}, {0, follow(50*s, 7*s)}, {7 * s, nothing}}, errStreamMax},
		"too old and silence does not count":  {[]step{{0, await(0)}, {0, follow(0, 7*s)}, {7 * s, nothing}}, errStreamMax},
		"silent, before it is too old":        {[]step{{0, await(0)}, {0, follow(5*s, 50*s)}, {5 * s, nothing}}, errStreamIdle},
		"over":                                {[]step{{0, await(30 * s)}, {1 * s, follow(5*s, 7*s)}, {2 * s, stop}, {99 * s, stop}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClockAt(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
			began := clock.Now()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			p := patience{clock: clock, cancel: cancel}
			for _, step := range c.steps {
				clock.Advance(began.Add(step.at).Sub(clock.Now()))
				step.do(&p, clock.Now())
			}
			if c.want == nil {
				p.ring() // a timer that has been set too early
			}
			// The clock's timer runs on its own: it is there or it never comes.
			for end := time.Now().Add(time.Minute); c.want != nil && ctx.Err() == nil && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if got := context.Cause(ctx); !errors.Is(got, c.want) {
				t.Errorf("it was ended by %v", got)
			}
		})
	}
}

// TestInterimAfterTheEnd: a 1xx that the transport tells of when the call is
// over goes nowhere: the answer is no longer its own.
func TestInterimAfterTheEnd(t *testing.T) {
	out := newAnswer(headerOnly{http.Header{"X-Own": {"1"}}}, clockwork.NewFakeClock(), 0)
	written := 0
	out.ResponseWriter = countedStatus{out.ResponseWriter, &written}
	i := newInterim(new(http.Request), out, redact.Redactor{})
	for range 2 {
		if err := i.relay(http.StatusEarlyHints, textproto.MIMEHeader{"Link": {"</style.css>"}}); err != nil {
			t.Fatal(err)
		}
		i.end(0)
	}
	if written != 1 || len(out.Header()) != 1 {
		t.Errorf("%d were sent; the header is %v", written, out.Header())
	}
}

// TestAHeaderThatIsBeingSentIsLeftAlone: over HTTP/2 net/http may still read the fields of a
// 1xx when the client is gone, and a map that is read while it is changed ends the process.
func TestAHeaderThatIsBeingSentIsLeftAlone(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	sent := http.Header{"X-Own": {"1"}}
	out := newAnswer(headerOnly{sent}, clockwork.NewFakeClock(), 0)
	i := newInterim(httptest.NewRequestWithContext(ctx, "GET", "/", nil), out, redact.Redactor{})
	if err := i.relay(http.StatusEarlyHints, textproto.MIMEHeader{"Link": {"</a>"}}); err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Link": {"</a>"}}
	if !maps.EqualFunc(sent, want, slices.Equal) || out.Header().Get("X-Own") != "1" || out.Header().Get("Link") != "" {
		t.Errorf("%v is being sent; the answer has %v", sent, out.Header())
	}
	leave()
	if err := i.relay(http.StatusEarlyHints, textproto.MIMEHeader{"Link": {"</b>"}}); err != nil {
		t.Fatal(err)
	}
	i.end(200)
	out.Header().Set("X-More", "2")
	out.WriteHeader(200)
	out.commit()
	out.Header().Set(http.TrailerPrefix+"X-Sum", "3")
	if !maps.EqualFunc(sent, want, slices.Equal) {
		t.Errorf("it became %v", sent)
	}
}

type countedStatus struct {
	http.ResponseWriter
	n *int
}

func (c countedStatus) WriteHeader(int) { *c.n++ }
