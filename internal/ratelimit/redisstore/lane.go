package redisstore

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"agentgw/internal/ratelimit"
)

// lane is the way to one server: the jobs that wait for it and the one goroutine that
// sends them, what is known of its clock, and whether it counts as away. Nothing that one
// server does holds up who asks another.
type lane struct {
	store  *Store
	client *redis.Client
	jobs   chan *job
	wake   chan struct{} // there is something told

	offset offset // of the server's clock
	failed atomic.Int64
	away   atomic.Bool
	told   told
}

// open begins to send to a server.
func (s *Store) open(client *redis.Client) *lane {
	l := &lane{store: s, client: client, jobs: make(chan *job, waitingMax), wake: make(chan struct{}, 1)}
	s.running.Add(1)
	go l.send()
	return l
}

func (l *lane) ask(of ratelimit.Job) (ratelimit.Answer, error) {
	s := l.store
	within := s.options.Timeout
	if of.Within > 0 {
		within = min(within, of.Within)
	}
	j := &job{Job: of, deadline: s.nanos.Nanos() + int64(within), done: make(chan struct{})}
	select {
	case l.jobs <- j:
	default:
		return ratelimit.Answer{}, l.failure(&Error{Reason: Overloaded})
	}
	patience := s.options.Clock.NewTimer(within)
	defer patience.Stop()
	select {
	case <-j.done:
	case <-patience.Chan():
		j.state.CompareAndSwap(isWaiting, isGivenUp)
		return ratelimit.Answer{}, l.failure(&Error{Reason: Timeout})
	case <-s.ended.Done():
		return ratelimit.Answer{}, errAway
	}
	if j.err != nil {
		return ratelimit.Answer{}, l.failure(j.err)
	}
	l.failed.Store(0)
	j.answer.Left = max(1, time.Duration(j.deadline-s.nanos.Nanos()))
	return j.answer, nil
}

func (l *lane) tell(of ratelimit.Job) {
	j := &job{Job: of, again: true, done: make(chan struct{})}
	if !l.away.Load() && l.told.empty() {
		select {
		case l.jobs <- j:
			return
		default:
		}
	}
	l.keep(j)
	l.nudge()
}

// nudge has the sender look at what is told.
func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// keep has a job wait until it can be told again.
func (l *lane) keep(j *job) {
	if !l.told.add(j) {
		l.store.dropped.Add(1) // leases run out; what was counted later is lost
	}
}

// failure counts one, and returns it. One that says something of a single key, and
// nothing of the server, is no sign that this is away.
func (l *lane) failure(err error) error {
	s := l.store
	var of *Error
	if !errors.As(err, &of) {
		of = &Error{Reason: Other, Err: err}
	}
	s.byReason.count(of.Reason)
	if of.Reason != Script && s.ended.Err() == nil && l.failed.Add(1) >= failures && l.away.CompareAndSwap(false, true) {
		s.away.Add(1)
		s.running.Add(1)
		go l.probe(of)
	}
	return of
}

// probe looks whether the server is back, until it is.
func (l *lane) probe(why error) {
	s := l.store
	defer s.running.Done()
	s.tell(why)
	ticker := s.options.Clock.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended.Done():
			return
		case <-ticker.Chan():
		}
		if !l.answers() {
			continue
		}
		if s.options.Back != nil && s.options.Back(probing{l}) != nil {
			continue
		}
		l.failed.Store(0)
		l.away.Store(false)
		l.nudge()
		s.away.Add(-1)
		s.tell(nil)
		return
	}
}

// answers reports whether the server answers in time, and to what changes it.
func (l *lane) answers() bool {
	from := l.store.nanos.Nanos()
	_, err := probing{l}.Ask(ratelimit.Probe())
	return err == nil && l.store.nanos.Nanos()-from <= int64(l.store.options.Timeout)
}

// probing asks although the server counts as away.
type probing struct{ *lane }

// Ask implements ratelimit.Store.
func (p probing) Ask(of ratelimit.Job) (ratelimit.Answer, error) {
	s := p.store
	j := &job{Job: of, deadline: s.nanos.Nanos() + int64(onTheWire), done: make(chan struct{})}
	select {
	case p.jobs <- j:
	case <-s.ended.Done():
		return ratelimit.Answer{}, errAway
	}
	patience := s.options.Clock.NewTimer(onTheWire)
	defer patience.Stop()
	select {
	case <-j.done:
		return j.answer, j.err
	case <-patience.Chan():
		j.state.CompareAndSwap(isWaiting, isGivenUp)
		return ratelimit.Answer{}, &Error{Reason: Timeout}
	case <-s.ended.Done():
		return ratelimit.Answer{}, errAway
	}
}

// Tell implements ratelimit.Store.
func (p probing) Tell(of ratelimit.Job) { p.tell(of) }
