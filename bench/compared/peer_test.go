package compared

import (
	"fmt"
	"time"
)

// quota is the limit of one bucket: count tokens come back in each period, one
// after the other, and it holds burst.
type quota struct {
	count  int
	period time.Duration
	burst  int
}

// interval is the time in which one token comes back, rounded up.
func (q quota) interval() time.Duration {
	return (q.period-1)/time.Duration(q.count) + 1
}

func (q quota) String() string {
	return fmt.Sprintf("%d each %v, burst %d", q.count, q.period, q.burst)
}

func every(t time.Duration, burst int) quota { return quota{1, t, burst} }

// answer is what a limiter said to one call. An error is no decision.
type answer struct {
	admitted bool
	err      error
	// wait is how long a refused call is told to wait; never, that no wait helps.
	// It is nil where the library tells nothing of the kind.
	wait func() (wait time.Duration, never bool)
}

// subject is a limiter that nobody used yet, under one quota. What is nil the
// library does not offer.
type subject struct {
	// set tells it what time it is, since the beginning.
	set  func(now time.Duration)
	take func(key string) answer
	// takeN asks for n tokens at once.
	takeN func(key string, n int) answer
	// reserve takes a token, of which there is one, that giveBack gives back.
	reserve func(key string) (giveBack func())
	// change puts another quota in force and keeps the state.
	change func(q quota)
}

// peer is a limiter and how it is made.
type peer struct {
	name   string
	module string // its module's path
	how    string // how it is used here, for the page
	make   func(q quota) subject
	// bounded makes one that keeps at most so many keys.
	bounded func(q quota, keys int) subject
	// overtaken makes one of which each call is overtaken by another call of the
	// same key as often as its algorithm lets that happen; the number of those
	// calls is at most overtakers. It is nil where decisions do not interleave.
	overtaken func(q quota) subject
	// wallClock: it goes by a clock that can be set back.
	wallClock bool
	// ownTime: its time cannot be set. Checks that have a way of their own for it
	// are in own, by the name of the property; why tells of the others.
	ownTime bool
	own     map[string]func() result
	// nonsense is how limits that mean nothing are written, by the name of the
	// property; where there is none, its types rule them out.
	nonsense map[string]nonsense
	// documented has, by the name of the property, where the project itself tells
	// of what fails.
	documented map[string]string
}

// nonsense is a limit that means nothing.
type nonsense struct {
	written string
	make    func() (subject, error)
	// meant is what the documentation says that it means, if it does.
	meant string
	// unlimited: that is no limit.
	unlimited bool
}

var peers = []peer{ours(), timeRate(), throttledPeer(), goLimiter(), redisRate()}

type verdict int

const (
	holds verdict = iota
	fails
	hasNone
	notAsked
)

func (v verdict) String() string {
	return [...]string{"holds", "**fails**", "has none", "not asked"}[v]
}

// result is how a peer did in one property; history is why it fails, or was not
// asked.
type result struct {
	verdict verdict
	history string
}

func ok() result { return result{verdict: holds} }

func failed(format string, args ...any) result {
	return result{fails, fmt.Sprintf(format, args...)}
}

// tried calls f, and makes an error of a panic.
func tried(f func() answer) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{err: fmt.Errorf("panic: %v", r)}
		}
	}()
	return f()
}

// admittedOf is how many of n calls at one time are admitted; the error is the
// first that there was.
func (s subject) admittedOf(n int) (admitted int, err error) {
	for range n {
		a := s.take("k")
		if a.err != nil && err == nil {
			err = a.err
		}
		if a.admitted {
			admitted++
		}
	}
	return admitted, err
}
