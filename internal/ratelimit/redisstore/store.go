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

	"agentgw/internal/ratelimit"
	"agentgw/internal/redisaddr"
)

// Options of a Store.
type Options struct {
	// URL is where Redis is: see redisaddr.
	URL string
	// Timeout is how long a decision may wait; 0 is 10 ms.
	Timeout time.Duration
	// Clock times what is waited for.
	Clock clockwork.Clock
	// Mode is told once the store has first answered, with nil; and whenever it goes away,
	// as it does if it does not answer when it is first asked, with the reason, again if
	// that is by now another that somebody has to mend; and when it is back, with nil.
	// Before it is told that, Back has run.
	Mode func(reason error)
	// Back is called when the store answers again, before anybody is decided by it. It has
	// to ask by what it is given.
	Back func(ratelimit.Store) error
	// Channel is one on which this process is told something through Redis, and Heard is
	// given each message, one after the other. Some may be lost. Without a Channel nothing is heard.
	Channel string
	Heard   func(message string)

	before string // the program: a text of tests
}

const (
	manyJobs   = 128  // in one batch
	underWay   = 2    // batches: one that Redis runs, and one that is written or read meanwhile
	oneCommand = 32   // of them in one command: Redis does nothing else meanwhile
	waitingMax = 4096 // jobs that wait to be sent
	toldMax    = 1 << 16
	failures   = 5 // in a row, after which the store counts as away
	probeEvery = 250 * time.Millisecond
)

// Store is a Redis. Make it with Open. It is safe for concurrent use.
type Store struct {
	options Options
	nanos   ratelimit.Clock
	connecting
	only    *lane    // nil with a Cluster
	cluster *cluster // nil without one
	ended   context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	tried   chan struct{} // closed when the store has been asked once, whatever came of it

	number   atomic.Int64 // of answers
	dropped  atomic.Int64
	reloads  atomic.Int64
	byReason reasons

	away atomic.Int64 // lanes that are
	mode sync.Mutex   // over telling of it
	said mode         // that was told last
	why  Reason       // that was

	program  ratelimit.Program
	together int // jobs in one command, whose keys must all lie on one server
}

// mode is whether the store decides, as was told.
type mode uint8

const (
	isUnknown mode = iota
	isShared
	isAway
)

// job is one that somebody waits for.
type job struct {
	ratelimit.Job
	deadline int64        // in nanoseconds
	state    atomic.Int32 // waiting, then sent or given up
	answer   ratelimit.Answer
	err      error
	done     chan struct{} // nil if it is told
	again    bool          // it is told, not asked
	asking   bool          // of a server that is about to get its slot
	alone    bool          // not in one command with others
	unknown  bool          // Redis did not know the program, once
	sentOn   int           // to other servers
	tries    int           // to find all keys in one place
	values   []int64       // that Redis replied
}

const (
	isWaiting = iota
	isSent
	isGivenUp
)

// Open returns a Store, whether Redis answers or not. The error is of the URL, and
// never quotes it.
func Open(o Options) (*Store, error) {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Millisecond
	}
	address, err := redisaddr.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	config, err := address.Config()
	if err != nil {
		return nil, err
	}
	s := &Store{options: o, nanos: ratelimit.NewClock(o.Clock), connecting: connecting{address, config, o.Timeout}, program: ratelimit.NewProgram(o.before), together: oneCommand, tried: make(chan struct{})}
	s.ended, s.end = context.WithCancel(context.Background())
	switch address.Kind {
	case redisaddr.Single:
		s.only = s.openAt(address.Hosts[0])
		s.begin(s.only)
	case redisaddr.Sentinel:
		s.only = s.open("", s.connecting.master)
		s.begin(s.only)
	case redisaddr.Cluster:
		s.openCluster()
	}
	if o.Channel != "" {
		s.running.Add(1)
		go s.hear()
	}
	return s, nil
}

// Close ends what is under way. What was told and not run is lost.
func (s *Store) Close() {
	s.end()
	s.running.Wait()
}

// Divided reports whether a job has to have keys of one tag only.
func (s *Store) Divided() bool { return s.cluster != nil }

// lane is the one that runs a job; nil if it is not known.
func (s *Store) lane(of ratelimit.Job) *lane {
	if s.cluster != nil {
		return s.cluster.lane(of)
	}
	return s.only
}

// Ask implements ratelimit.Store.
func (s *Store) Ask(of ratelimit.Job) (ratelimit.Answer, error) {
	s.Begun()
	l := s.lane(of)
	if s.cluster != nil && !s.cluster.known.Load() || l == nil || l.away.Load() {
		s.byReason.count(Away)
		return ratelimit.Answer{}, errAway
	}
	return l.ask(of)
}

// Tell implements ratelimit.Store.
func (s *Store) Tell(of ratelimit.Job) {
	if l := s.lane(of); l != nil {
		l.tell(of)
	} else {
		s.dropped.Add(1)
	}
}

// Reloads is how many times Redis had to be given the scripts.
func (s *Store) Reloads() int64 { return s.reloads.Load() }

// Dropped is how much was told and never run, as more waited than is kept.
func (s *Store) Dropped() int64 { return s.dropped.Load() }

// Away reports whether the store counts as away, or a part of it does. It does until it has
// first answered.
func (s *Store) Away() bool { return s.away.Load() > 0 }

// tell tells that the store is away, as a lane is for that reason, or, without one, that it
// is back, as a lane is: if it is so by now, and was not told before, or not for a reason
// that lasts.
func (s *Store) tell(why error) {
	s.mode.Lock()
	defer s.mode.Unlock()
	away, is := s.Away(), isShared
	if away {
		is = isAway
	}
	var of *Error
	_ = errors.As(why, &of)
	another := away && of != nil && of.lasts() && of.Reason != s.why
	if is == s.said && !another || away && why == nil {
		return
	}
	if s.said = is; of != nil {
		s.why = of.Reason
	}
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
