package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"agentgw/internal/ratelimit"
)

// Reason is why the store did not decide.
type Reason string

// The reasons. What Redis says is told by its first word, and by nothing of the rest:
// that may hold a key.
const (
	Away       Reason = "away"        // it counts as away, and was not asked
	Timeout    Reason = "timeout"     // no answer in time
	Late       Reason = "late"        // it came to the job after its deadline, and did nothing
	Overloaded Reason = "overloaded"  // more jobs wait than may
	Network    Reason = "network"     // no connection, or a broken one
	ReadOnly   Reason = "readonly"    // a replica, as after a failover
	Loading    Reason = "loading"     // it reads its data
	Memory     Reason = "oom"         // it may keep no more
	Moved      Reason = "moved"       // a node of a Cluster that has not got the key, or not all of it
	Down       Reason = "clusterdown" // a Cluster of which too much is away
	Unnamed    Reason = "nomaster"    // Sentinels that know no master of that name
	TLS        Reason = "tls"         // a certificate, or one of both sides that speaks no TLS
	Denied     Reason = "denied"      // wrong password, or no right to the command
	Script     Reason = "script"      // a script failed, as on a key of another type
	Other      Reason = "other"
)

var allReasons = []Reason{Away, Timeout, Late, Overloaded, Network, ReadOnly, Loading, Memory, Moved, Down, Unnamed, TLS, Denied, Script, Other}

// Error says why the store did not decide.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string {
	text := "the shared limits cannot be asked: " + string(e.Reason)
	switch e.Reason {
	case TLS:
		text += ": " + e.Err.Error()
	case Moved:
		text += ": a node of a Cluster, whose URL begins with redis+cluster"
	}
	return text
}

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
	case isTLS(err):
		e.Reason = TLS
	case err != nil && strings.Contains(err.Error(), "all sentinels specified") && errors.Is(err, redis.Nil):
		e.Reason = Unnamed
	case errors.As(err, &said):
		word, _, _ := strings.Cut(err.Error(), " ")
		switch word {
		case "READONLY", "MASTERDOWN", "NOREPLICAS":
			e.Reason = ReadOnly
		case "LOADING", "BUSY":
			e.Reason = Loading
		case "OOM", "MISCONF":
			e.Reason = Memory
		case "MOVED", "ASK", "CROSSSLOT":
			e.Reason = Moved
		case "TRYAGAIN":
			e.Reason, e.Err = Moved, ratelimit.ErrScattered
		case "CLUSTERDOWN":
			e.Reason = Down
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

// isTLS reports whether an error is of TLS, or of its certificates.
func isTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	// What the other side refuses comes with what is read, and in no type of its own.
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert) || err != nil && strings.Contains(err.Error(), "remote error: tls:")
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
