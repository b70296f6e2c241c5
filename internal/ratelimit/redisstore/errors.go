package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Reason is why the store did not decide.
type Reason string

// The reasons. What Redis says is told by its first word, and by nothing of the rest:
// that may hold a key.
const (
	Away       Reason = "away"       // it counts as away, and was not asked
	Timeout    Reason = "timeout"    // no answer in time
	Late       Reason = "late"       // it came to the job after its deadline, and did nothing
	Overloaded Reason = "overloaded" // more jobs wait than may
	Network    Reason = "network"    // no connection, or a broken one
	ReadOnly   Reason = "readonly"   // a replica, as after a failover
	Loading    Reason = "loading"    // it reads its data
	Memory     Reason = "oom"        // it may keep no more
	Moved      Reason = "moved"      // a part of a cluster that has not got the key
	Denied     Reason = "denied"     // wrong password, or no right to the command
	Script     Reason = "script"     // a script failed, as on a key of another type
	Other      Reason = "other"
)

var allReasons = []Reason{Away, Timeout, Late, Overloaded, Network, ReadOnly, Loading, Memory, Moved, Denied, Script, Other}

// Error says why the store did not decide.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return "the shared limits cannot be asked: " + string(e.Reason) }

// Unwrap returns the cause, which may quote what Redis said.
func (e *Error) Unwrap() error { return e.Err }

var errAway = &Error{Reason: Away}

// reasonOf sorts what go-redis returns.
func reasonOf(err error) *Error {
	e := &Error{Reason: Other, Err: err}
	var said redis.Error
	var network net.Error
	switch {
	case errors.Is(err, errReply):
	case errors.As(err, &said):
		word, _, _ := strings.Cut(err.Error(), " ")
		switch word {
		case "READONLY", "MASTERDOWN", "NOREPLICAS":
			e.Reason = ReadOnly
		case "LOADING", "BUSY":
			e.Reason = Loading
		case "OOM", "MISCONF":
			e.Reason = Memory
		case "MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN", "CROSSSLOT":
			e.Reason = Moved
		case "NOAUTH", "WRONGPASS", "NOPERM":
			e.Reason = Denied
		case "ERR", "WRONGTYPE":
			e.Reason = Script
		}
		// Of a script that failed at a command Redis quotes that one's error. And of many
		// arguments it does not read from who has not said the password it says what it may.
		for word, reason := range map[string]Reason{"OOM ": Memory, "READONLY ": ReadOnly, "MISCONF ": Memory, "unauthenticated": Denied} {
			if e.Reason == Script && strings.Contains(err.Error(), word) {
				e.Reason = reason
			}
		}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		e.Reason = Timeout
	case err != nil:
		e.Reason = Network
	}
	return e
}

// reasons counts decisions that the store did not make.
type reasons struct{ n [16]atomic.Int64 }

func (r *reasons) count(of Reason) {
	for i, reason := range allReasons {
		if reason == of {
			r.n[i].Add(1)
		}
	}
}

// Failures yields how many decisions the store did not make, by why.
func (s *Store) Failures() map[Reason]int64 {
	all := make(map[Reason]int64, len(allReasons))
	for i, reason := range allReasons {
		all[reason] = s.byReason.n[i].Load()
	}
	return all
}
