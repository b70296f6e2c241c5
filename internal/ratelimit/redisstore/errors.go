package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"agentgw/internal/ratelimit"
)

// Error says why the store did not decide.
type Error struct {
	Reason Reason
	Err    error
}

// Error says it to an operator, and what there is to do. Of what Redis said it has the
// first word alone.
func (e *Error) Error() string {
	text := "the shared limits cannot be asked: " + string(e.Reason) + ": " + e.Reason.Words()
	switch word := firstWord(e.Err); {
	case e.Reason == TLS:
		text += ": " + e.Err.Error()
	case e.Reason == Timeout && isHandshake(e.Err):
		text += ". It was to begin with TLS: a port without needs redis://"
	case word != "" && word != "ERR":
		text += " (" + word + ")"
	}
	return text
}

// lasts reports whether it is so until somebody mends it, or another server takes over.
func (e *Error) lasts() bool { return causes[e.Reason.place()].lasting }

// Unwrap returns the cause, which may quote what Redis said.
func (e *Error) Unwrap() error { return e.Err }

var errAway = &Error{Reason: Away}

// firstWord is that of what Redis said, which names the error; "" if it said nothing, or
// does not begin with such a word.
func firstWord(err error) string {
	var by redis.Error
	if !errors.As(err, &by) {
		return ""
	}
	word, _, _ := strings.Cut(err.Error(), " ")
	if word != strings.ToUpper(word) || len(word) > 20 {
		return ""
	}
	return word
}

// byWord are the reasons that Redis tells by the first word.
var byWord = map[string]Reason{
	"READONLY": ReadOnly, "MASTERDOWN": ReadOnly,
	"LOADING": Loading, "BUSY": Busy,
	"OOM": Memory, "MISCONF": Unsaved, "NOREPLICAS": Unsaved,
	"MOVED": Moved, "ASK": Moved, "CROSSSLOT": Moved, "TRYAGAIN": Moved, "CLUSTERDOWN": Down,
	"NOAUTH": Denied, "WRONGPASS": Denied, "NOPERM": Denied,
	"NOSCRIPT": Foreign, // for the second time, although it was given the scripts
}

// byPhrase are those that stand in what begins with ERR, or in the error that a script
// quotes which failed at a command.
var byPhrase = []struct {
	phrase string
	Reason
}{
	{"OOM ", Memory}, {"READONLY ", ReadOnly}, {"MISCONF ", Unsaved}, {"NOREPLICAS ", Unsaved},
	{"NOPERM ", Denied}, {"ACL failure", Denied}, {"user executing the script", Denied}, {"unauthenticated", Denied}, {"invalid password", Denied},
	{"DB index is out of range", Database}, {"SELECT is not allowed", Database},
	{"unknown command", Foreign}, {"unknown subcommand", Foreign}, {"number of clients", Network},
}

// reasonOf sorts what go-redis returns, and what a job replied.
func reasonOf(err error) *Error {
	e := &Error{Reason: Other, Err: err}
	var of redis.Error
	var network net.Error
	switch {
	case err == nil, errors.Is(err, errReply):
	case isTLS(err):
		e.Reason = TLS
	case strings.Contains(err.Error(), "all sentinels specified") && errors.Is(err, redis.Nil):
		e.Reason = Unnamed
	case errors.As(err, &of):
		e.Reason = reasonSaid(err)
		if firstWord(err) == "TRYAGAIN" {
			e.Err = ratelimit.ErrScattered
		}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		e.Reason = Timeout
	case strings.HasPrefix(err.Error(), "redis: can't parse"), strings.HasPrefix(err.Error(), "redis: invalid reply"):
		e.Reason = Foreign
	default:
		e.Reason = Network
	}
	return e
}

// reasonSaid sorts what Redis said. What is wrong with one job alone is a script's; what is
// wrong with all of a command is the server's.
func reasonSaid(err error) Reason {
	if of, found := byWord[firstWord(err)]; found {
		return of
	}
	for _, p := range byPhrase {
		if strings.Contains(err.Error(), p.phrase) {
			return p.Reason
		}
	}
	var of ofJob
	if errors.As(err, &of) {
		return Script
	}
	return Other
}

// handshakeError is of TLS that did not come about on a connection that did.
type handshakeError struct{ error }

func (e handshakeError) Unwrap() error { return e.error }

func isHandshake(err error) bool {
	var of handshakeError
	return errors.As(err, &of)
}

// isTLS reports whether an error is of TLS, or of its certificates.
func isTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var network net.Error
	// What the other side refuses comes with what is read, and in no type of its own.
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert) || strings.Contains(err.Error(), "remote error: tls:") ||
		isHandshake(err) && !(errors.As(err, &network) && network.Timeout())
}
