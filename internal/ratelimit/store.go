package ratelimit

import (
	"errors"
	"time"
)

// Job is one run of a script.
type Job struct {
	Script  *Script
	Keys    []string
	Numbers []int64 // below 2^53; the deadline is not among them
	Texts   []string
	// Within is how long the answer may take, if that is not as long as a decision may.
	Within time.Duration
	// Once has a job that is told be given up after a failure, as it may have run.
	Once bool
}

// Answer is what a script returned.
type Answer struct {
	// Number grows with each answer of one store, in the order in which it gave them.
	Number int64
	// Values are what follows the time.
	Values []int64
	// Left is how long another answer for the same decision may take.
	Left time.Duration
}

// Store is where replicas keep what they share. It is safe for concurrent use.
//
// What one replica asks and tells is run in the order in which it came, but for what is
// told again after a failure.
type Store interface {
	// Ask runs a job and waits for its answer, for as long as a decision may take. With
	// an error nothing is known of the job: it may have run, or not.
	Ask(Job) (Answer, error)
	// Tell has a job run that nobody waits for, again until it did. It must not matter
	// if it runs twice.
	Tell(Job)
}

// ErrElsewhere is what a part of a store says of a job that another part is for.
var ErrElsewhere = errors.New("another part of the store has that")

// ErrScattered is what a store says of a job whose keys, though of one tag, are on the way
// from one server to another, some here and some there: each alone may be asked for.
var ErrScattered = errors.New("keys are on the way from one server to another")

// Policy is what holds for a limit while the store is away.
type Policy uint8

const (
	// PolicyDefault is that of the limiter, and for the limiter PolicyShare.
	PolicyDefault Policy = iota
	// PolicyShare has each replica enforce its share: the limit by as many replicas as
	// were last known to live, at least 1.
	PolicyShare
	// PolicyOpen lets every call pass.
	PolicyOpen
	// PolicyClosed lets none.
	PolicyClosed
)

// PolicyOf is the policy of that name: local, open or closed; any other is the default.
func PolicyOf(name string) Policy {
	switch name {
	case "local":
		return PolicyShare
	case "open":
		return PolicyOpen
	case "closed":
		return PolicyClosed
	}
	return PolicyDefault
}
