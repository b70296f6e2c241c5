// Package redisstore keeps what replicas share of their limits in Redis or Valkey. It
// knows scripts and how to have them run in time, and nothing of what they decide.
//
// # What it promises
//
//   - An answer comes within the timeout, or an error does. Whoever has had an error
//     may go on: what the job still does, if it is under way, it does by its own
//     deadline, which is the same, or not at all.
//   - While Redis does not answer, nobody waits for it: after a few failures in a row
//     jobs fail at once, and a probe looks every quarter of a second whether it is back.
//   - Jobs of one Store are run in the order in which they came. What is told is told
//     again until it was run, and meanwhile kept, up to a bound.
//
// # What it does not promise
//
// Redis replicates asynchronously. One that fails over has lost what it was told last.
package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"agentgw/internal/ratelimit"
)

// Options of a Store.
type Options struct {
	// URL is where Redis is: redis://[user:password@]host:port[/db], rediss:// with TLS.
	URL string
	// Timeout is how long a decision may wait; 0 is 10 ms.
	Timeout time.Duration
	// Clock times what is waited for.
	Clock clockwork.Clock
	// Mode is told whenever the store goes away, with the reason, and when it is back,
	// with nil. Before it is told the latter, Back has run.
	Mode func(reason error)
	// Back is called when the store answers again, before anybody is asked to decide by
	// it. It may use the store.
	Back func() error
}

const (
	manyJobs   = 128  // in one pipeline
	waitingMax = 4096 // jobs that wait to be sent
	toldMax    = 1 << 16
	failures   = 5 // in a row, after which the store counts as away
	probeEvery = 250 * time.Millisecond
	// onTheWire is how long a connection may be silent. It is not the timeout: an answer
	// that comes late is still worth more than a new connection.
	onTheWire = 50 * time.Millisecond
)

// Store is a Redis. Make it with Open. It is safe for concurrent use.
type Store struct {
	options Options
	nanos   ratelimit.Clock
	client  redis.UniversalClient
	jobs    chan *job
	wake    chan struct{} // there is something told
	ended   context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	offset   offset // of the store's clock
	number   int64  // of answers; the sender's alone
	failed   atomic.Int64
	away     atomic.Bool
	told     told
	dropped  atomic.Int64
	reloads  atomic.Int64
	byReason reasons

	testingOnlyScript func(*ratelimit.Script) *ratelimit.Script // nil: scripts are run as they are
}

// job is one that somebody waits for.
type job struct {
	ratelimit.Job
	deadline int64        // in nanoseconds
	state    atomic.Int32 // waiting, then sent or given up
	answer   ratelimit.Answer
	err      error
	done     chan struct{}
	again    bool // it is told, not asked
	cmd      *redis.Cmd
}

const (
	isWaiting = iota
	isSent
	isGivenUp
)

// silent takes what go-redis would write to standard error by itself: what matters of it
// comes as an error too.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silent{}) }

// Open returns a Store, whether Redis answers or not. The error is of the URL, and
// never quotes it.
func Open(o Options) (*Store, error) {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Millisecond
	}
	parsed, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, errURL
	}
	parsed.MaxRetries = -1 // what may have run must not run twice
	parsed.ContextTimeoutEnabled = true
	parsed.DialTimeout, parsed.ReadTimeout, parsed.WriteTimeout = max(onTheWire, o.Timeout), max(onTheWire, o.Timeout), max(onTheWire, o.Timeout)
	parsed.DialerRetries = 1
	parsed.PoolSize, parsed.MinIdleConns = 2, 0
	parsed.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // which servers that know nothing of it log
	parsed.DisableIdentity = true
	s := &Store{
		options: o, nanos: ratelimit.NewClock(o.Clock), client: redis.NewClient(parsed),
		jobs: make(chan *job, waitingMax), wake: make(chan struct{}, 1),
	}
	s.ended, s.end = context.WithCancel(context.Background())
	s.running.Add(1)
	go s.send()
	return s, nil
}

var errURL = errors.New("is not redis://[user:password@]host:port[/db], nor the same with rediss://")

// Close ends what is under way. What was told and not run is lost.
func (s *Store) Close() {
	s.end()
	s.running.Wait()
	_ = s.client.Close()
}

// Ask implements ratelimit.Store.
func (s *Store) Ask(of ratelimit.Job) (ratelimit.Answer, error) {
	if s.away.Load() {
		s.byReason.count(Away)
		return ratelimit.Answer{}, errAway
	}
	return s.ask(of)
}

func (s *Store) ask(of ratelimit.Job) (ratelimit.Answer, error) {
	j := &job{Job: of, deadline: s.nanos.Nanos() + int64(s.options.Timeout), done: make(chan struct{})}
	select {
	case s.jobs <- j:
	default:
		return ratelimit.Answer{}, s.failure(&Error{Reason: Overloaded})
	}
	patience := s.options.Clock.NewTimer(s.options.Timeout)
	defer patience.Stop()
	select {
	case <-j.done:
	case <-patience.Chan():
		j.state.CompareAndSwap(isWaiting, isGivenUp)
		return ratelimit.Answer{}, s.failure(&Error{Reason: Timeout})
	case <-s.ended.Done():
		return ratelimit.Answer{}, errAway
	}
	if j.err != nil {
		return ratelimit.Answer{}, s.failure(j.err)
	}
	s.failed.Store(0)
	return j.answer, nil
}

// Tell implements ratelimit.Store.
func (s *Store) Tell(of ratelimit.Job) {
	j := &job{Job: of, again: true, done: make(chan struct{})}
	if !s.away.Load() && s.told.empty() {
		select {
		case s.jobs <- j:
			return
		default:
		}
	}
	s.keep(j)
	s.nudge()
}

// nudge has the sender look at what is told.
func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep has a job wait until it can be told again.
func (s *Store) keep(j *job) {
	if !s.told.add(j) {
		s.dropped.Add(1) // leases run out; what was counted later is lost
	}
}

// failure counts one, and returns it. One that says something of a single key, and
// nothing of the store, is no sign that this is away.
func (s *Store) failure(err error) error {
	var of *Error
	if !errors.As(err, &of) {
		of = &Error{Reason: Other, Err: err}
	}
	s.byReason.count(of.Reason)
	if of.Reason != Script && s.ended.Err() == nil && s.failed.Add(1) >= failures && s.away.CompareAndSwap(false, true) {
		s.running.Add(1)
		go s.probe(of)
	}
	return of
}

// probe looks whether the store is back, until it is.
func (s *Store) probe(why error) {
	defer s.running.Done()
	if s.options.Mode != nil {
		s.options.Mode(why)
	}
	ticker := s.options.Clock.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended.Done():
			return
		case <-ticker.Chan():
		}
		if !s.answers() {
			continue
		}
		if s.options.Back != nil && s.options.Back() != nil {
			continue
		}
		s.failed.Store(0)
		s.away.Store(false)
		s.nudge()
		if s.options.Mode != nil {
			s.options.Mode(nil)
		}
		return
	}
}

// Probing asks although the store counts as away, for Options.Back.
func (s *Store) Probing() ratelimit.Store { return probing{s} }

type probing struct{ *Store }

// Ask implements ratelimit.Store.
func (p probing) Ask(of ratelimit.Job) (ratelimit.Answer, error) {
	j := &job{Job: of, deadline: p.nanos.Nanos() + int64(onTheWire), done: make(chan struct{})}
	select {
	case p.jobs <- j:
	case <-p.ended.Done():
		return ratelimit.Answer{}, errAway
	}
	patience := p.options.Clock.NewTimer(onTheWire)
	defer patience.Stop()
	select {
	case <-j.done:
		return j.answer, j.err
	case <-patience.Chan():
		j.state.CompareAndSwap(isWaiting, isGivenUp)
		return ratelimit.Answer{}, &Error{Reason: Timeout}
	case <-p.ended.Done():
		return ratelimit.Answer{}, errAway
	}
}

// answers reports whether the store answers in time, and to what changes it.
func (s *Store) answers() bool {
	from := s.nanos.Nanos()
	_, err := s.Probing().Ask(ratelimit.Probe())
	return err == nil && s.nanos.Nanos()-from <= int64(s.options.Timeout)
}

// Reloads is how many times Redis had to be given the scripts.
func (s *Store) Reloads() int64 { return s.reloads.Load() }

// Dropped is how much was told and never run, as more waited than is kept.
func (s *Store) Dropped() int64 { return s.dropped.Load() }

// Away reports whether the store counts as away.
func (s *Store) Away() bool { return s.away.Load() }

// script is what is run of a script.
func (s *Store) script(of *ratelimit.Script) *ratelimit.Script {
	if s.testingOnlyScript != nil {
		return s.testingOnlyScript(of)
	}
	return of
}

func isNoScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }
