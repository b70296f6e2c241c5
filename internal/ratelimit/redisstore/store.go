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
	// Back is called when the store answers again, before anybody is decided by it. It has
	// to ask by what it is given.
	Back func(ratelimit.Store) error
}

const (
	manyJobs   = 128  // in one pipeline
	oneCommand = 32   // of them in one command: Redis does nothing else meanwhile
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
	only    *lane
	ended   context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	number   atomic.Int64 // of answers
	dropped  atomic.Int64
	reloads  atomic.Int64
	byReason reasons

	away     atomic.Int64 // lanes that are
	mode     sync.Mutex   // over telling of it
	saidAway bool

	program  ratelimit.Program
	together int // jobs in one command, whose keys must all lie on one server
}

// job is one that somebody waits for.
type job struct {
	ratelimit.Job
	deadline int64        // in nanoseconds
	state    atomic.Int32 // waiting, then sent or given up
	answer   ratelimit.Answer
	err      error
	done     chan struct{}
	again    bool    // it is told, not asked
	values   []int64 // that Redis replied
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
	s := &Store{options: o, nanos: ratelimit.NewClock(o.Clock), program: ratelimit.NewProgram(""), together: oneCommand}
	s.ended, s.end = context.WithCancel(context.Background())
	s.only = s.open(redis.NewClient(parsed))
	return s, nil
}

var errURL = errors.New("is not redis://[user:password@]host:port[/db], nor the same with rediss://")

// Close ends what is under way. What was told and not run is lost.
func (s *Store) Close() {
	s.end()
	s.running.Wait()
	_ = s.only.client.Close()
}

// lane is the one that runs a job.
func (s *Store) lane(ratelimit.Job) *lane { return s.only }

// Ask implements ratelimit.Store.
func (s *Store) Ask(of ratelimit.Job) (ratelimit.Answer, error) {
	l := s.lane(of)
	if l.away.Load() {
		s.byReason.count(Away)
		return ratelimit.Answer{}, errAway
	}
	return l.ask(of)
}

// Tell implements ratelimit.Store.
func (s *Store) Tell(of ratelimit.Job) { s.lane(of).tell(of) }

// Reloads is how many times Redis had to be given the scripts.
func (s *Store) Reloads() int64 { return s.reloads.Load() }

// Dropped is how much was told and never run, as more waited than is kept.
func (s *Store) Dropped() int64 { return s.dropped.Load() }

// Away reports whether the store counts as away, or a part of it does.
func (s *Store) Away() bool { return s.away.Load() > 0 }

// tell tells that the store is away, as a lane went for that reason, or, without one, that
// it is back, as a lane is: if it is so by now, and was not told before.
func (s *Store) tell(why error) {
	s.mode.Lock()
	defer s.mode.Unlock()
	away := s.Away()
	if away == s.saidAway || away && why == nil {
		return
	}
	s.saidAway = away
	if s.options.Mode == nil {
		return
	}
	if away {
		s.options.Mode(why)
	} else {
		s.options.Mode(nil)
	}
}

func isNoScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }
