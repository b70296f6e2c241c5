package redisstore

import (
	"context"
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
	store   *Store
	client  func() *redis.Client // that is to make one connection
	address string               // "" if Sentinels know it
	jobs    chan *job
	wake    chan struct{} // there may be something to send
	ended   context.Context
	end     context.CancelFunc

	buffer  []byte // of the sender
	unknown unknown
	flights atomic.Int64 // that are under way
	flying  atomic.Int64 // jobs of them

	offset offset // of the server's clock
	failed atomic.Int64
	away   atomic.Bool
	afresh atomic.Bool // another connection is to be made: the address may lead elsewhere by now
	told   told

	retired atomic.Bool // no slot of a Cluster leads here any more
	since   atomic.Int64
}

// open begins to send to the server that clients lead to.
func (s *Store) open(address string, client func() *redis.Client) *lane {
	l := &lane{store: s, client: client, address: address, jobs: make(chan *job, waitingMax), wake: make(chan struct{}, 1)}
	l.ended, l.end = context.WithCancel(s.ended)
	s.running.Add(1)
	go l.send()
	return l
}

func (s *Store) openAt(address string) *lane {
	return s.open(address, func() *redis.Client { return s.connecting.server(address) })
}

// retire has a lane be one that no slot leads to. What it still has been told is told to
// whom they lead now.
func (l *lane) retire(now int64) {
	l.since.Store(now)
	l.retired.Store(true)
	for _, j := range l.told.take(toldMax) {
		l.keep(j)
	}
}

// resume has a job wait again that was sent, and did not run.
func (l *lane) resume(j *job) {
	j.state.CompareAndSwap(isSent, isWaiting)
	if l.queue(j) {
		return
	}
	if j.again {
		l.keep(j)
		return
	}
	j.err = &Error{Reason: Overloaded}
	close(j.done)
}

// queue has a job wait to be sent, and reports whether there was room for it.
func (l *lane) queue(j *job) bool {
	select {
	case l.jobs <- j:
	default:
		return false
	}
	if l.due() { // else whoever reads the last of those that are under way has it be sent
		l.nudge()
	}
	return true
}

func (l *lane) ask(of ratelimit.Job) (ratelimit.Answer, error) {
	s := l.store
	within := s.options.Timeout
	if of.Within > 0 {
		within = min(within, of.Within)
	}
	j := &job{Job: of, deadline: s.nanos.Nanos() + int64(within), done: make(chan struct{})}
	if !l.queue(j) {
		return ratelimit.Answer{}, l.failure(&Error{Reason: Overloaded})
	}
	patience := s.options.Clock.NewTimer(within)
	defer patience.Stop()
	select {
	case <-j.done:
	case <-patience.Chan():
		j.state.CompareAndSwap(isWaiting, isGivenUp)
		return ratelimit.Answer{}, l.failure(&Error{Reason: Timeout})
	case <-l.ended.Done():
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
	j := &job{Job: of, again: true}
	if !l.away.Load() && l.told.empty() && l.queue(j) {
		return
	}
	l.keep(j)
	l.nudge()
}

// keep has a job wait until it can be told again, to whom it is to be told by now.
func (l *lane) keep(j *job) {
	if c := l.store.cluster; c != nil {
		if to := c.lane(j.Job); to != nil && to != l {
			l = to
			defer l.nudge()
		}
	}
	if !l.told.add(j) {
		l.store.dropped.Add(1) // leases run out; what was counted later is lost
	}
}

// count counts a failure by its reason.
func (s *Store) count(err error) *Error {
	var of *Error
	if !errors.As(err, &of) {
		of = &Error{Reason: Other, Err: err}
	}
	s.byReason.count(of.Reason)
	return of
}

// failure counts one, and returns it. One that says something of a single key, and
// nothing of the server, is no sign that this is away.
func (l *lane) failure(err error) error {
	s := l.store
	of := s.count(err)
	if of.Reason == Script || of.Reason == Moved && s.cluster != nil {
		return of
	}
	if s.cluster != nil {
		s.cluster.stale.Store(true)
	}
	if s.ended.Err() == nil && (of.lasts() || l.failed.Add(1) >= failures) {
		l.goAway(of, false)
	}
	return of
}

// goAway has the server count as away, until it answers. soon: it may well answer now.
func (l *lane) goAway(why error, soon bool) {
	if l.away.CompareAndSwap(false, true) {
		l.renounce(why)
		l.store.away.Add(1)
		l.store.running.Add(1)
		go l.probe(why, soon)
	}
}

// probe looks whether the server is back, until it is, or has nothing to say any more.
func (l *lane) probe(why error, soon bool) {
	s := l.store
	defer s.running.Done()
	s.tell(why)
	ticker := s.options.Clock.NewTicker(probeEvery)
	defer ticker.Stop()
	for ; ; soon = false {
		if !soon {
			select {
			case <-l.ended.Done():
				return
			case <-ticker.Chan():
			}
		}
		job, found := ratelimit.Probe(), true
		if s.cluster != nil {
			job, found = s.cluster.probe(l)
		}
		if found {
			err := l.answers(job)
			if err == nil && s.options.Back != nil {
				err = s.options.Back(probing{s, l})
			}
			if err != nil {
				l.renounce(err)
				s.tell(err)
				continue
			}
		}
		l.isBack()
		return
	}
}

// renounce has another connection be made if an error is of those that last: where an address
// or a name leads to who is master, that may be another by now, while a connection stays with
// the one that was.
func (l *lane) renounce(err error) {
	var of *Error
	if errors.As(err, &of) && of.lasts() {
		l.afresh.Store(true)
	}
}

// isBack has the server be asked again.
func (l *lane) isBack() {
	l.failed.Store(0)
	l.away.Store(false)
	l.nudge()
	l.store.away.Add(-1)
	l.store.tell(nil)
}

// answers returns an error if the server does not answer in time, and to what changes it.
func (l *lane) answers(probe ratelimit.Job) error {
	from := l.store.nanos.Nanos()
	_, err := l.askLong(probe)
	if err == nil && l.store.nanos.Nanos()-from > int64(l.store.options.Timeout) {
		err = &Error{Reason: Timeout}
	}
	return err
}

// askLong asks although the server counts as away.
func (l *lane) askLong(of ratelimit.Job) (ratelimit.Answer, error) { return l.askFor(of, onTheWire) }

// askFor is askLong, for as long as within.
func (l *lane) askFor(of ratelimit.Job, within time.Duration) (ratelimit.Answer, error) {
	s := l.store
	j := &job{Job: of, deadline: s.nanos.Nanos() + int64(within), done: make(chan struct{})}
	if !l.queue(j) {
		return ratelimit.Answer{}, &Error{Reason: Overloaded}
	}
	patience := s.options.Clock.NewTimer(within)
	defer patience.Stop()
	select {
	case <-j.done:
		return j.answer, j.err
	case <-patience.Chan():
		j.state.CompareAndSwap(isWaiting, isGivenUp)
		return ratelimit.Answer{}, &Error{Reason: Timeout}
	case <-l.ended.Done():
		return ratelimit.Answer{}, errAway
	}
}

// probing is the store for who asks although a lane counts as away; of a Cluster that one
// alone. Without a lane it is all of it.
type probing struct {
	store *Store
	lane  *lane
}

// Ask implements ratelimit.Store.
func (p probing) Ask(of ratelimit.Job) (ratelimit.Answer, error) {
	l := p.store.lane(of)
	switch {
	case l == nil:
		return ratelimit.Answer{}, errAway
	case p.lane != nil && p.lane != l:
		return ratelimit.Answer{}, ratelimit.ErrElsewhere
	}
	return l.askLong(of)
}

// Tell implements ratelimit.Store.
func (p probing) Tell(of ratelimit.Job) { p.store.Tell(of) }
