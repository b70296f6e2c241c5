package rules

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"cel.dev/cel-go/interpreter"
)

// complaints keep what every call may give rise to from filling a log.
type complaints struct{ faults, observed once }

// once lets something happen once a minute.
type once struct{ next atomic.Int64 }

// at reports whether it may happen now.
func (o *once) at(now time.Time) bool {
	unix, next := now.UnixNano(), o.next.Load()
	return unix >= next && o.next.CompareAndSwap(next, unix+int64(time.Minute))
}

// FaultDue reports whether it is time to log that an expression had no result:
// once a minute for each rule.
func (r *Rule) FaultDue(now time.Time) bool { return r.complaints.faults.at(now) }

// ObservedDue reports whether it is time to log that a rule which observes would
// have refused a call: once a minute for each rule.
func (r *Rule) ObservedDue(now time.Time) bool { return r.complaints.observed.at(now) }

// why says why an expression had no result, in words that hold nothing of what the
// call held: CEL's own name the key that was not there, which may be a value.
func why(err error) string {
	if mine := []error{errNotBool, errNotText, errNotNumber, errNegative}; isOneOf(err, mine) {
		return err.Error()
	}
	if errors.Is(err, errMany) || errors.As(err, new(interpreter.EvalCancelledError)) {
		return "it would take too much work"
	}
	for begins, means := range map[string]string{
		"no such key": "it looks at a parameter that is not there", "no such attribute": "it looks at a parameter that is not there",
		"no such overload": "a value is of another type than it takes", "index out of bounds": "it looks past the end of a list",
		"division by zero": "it divides by zero", "modulus by zero": "it divides by zero",
		"integer overflow": "a number is too large", "unsigned integer overflow": "a number is too large", "range error": "a number is too large",
	} {
		if strings.HasPrefix(err.Error(), begins) {
			return means
		}
	}
	return "it has no result"
}

func isOneOf(err error, list []error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
