package rules

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"agentgw/internal/registry"
)

// Charge is what a call means to a rule.
type Charge struct {
	Partition string
	Count     int64 // not negative, at most registry.MaxQuota+1
	Max       int64 // -1: there is none, and the call is refused
	Faults    []Fault
}

// Fault is an expression that had no result.
type Fault struct{ Part, Why string }

// keyless is the partition of the calls whose key has no result. No text is:
// what begins like it is hashed.
const keyless = "\x00"

// Shown is a partition for people to read.
func Shown(partition string) string {
	switch {
	case partition == keyless:
		return "one of those whose key has no result"
	case strings.HasPrefix(partition, keyless):
		return fmt.Sprintf("a key with the SHA-256 %x", partition[len(keyless):])
	}
	return partition
}

// Charge says what c means to the rule, unless it means nothing.
func (r *Rule) Charge(c *Call) (ch Charge, applies bool) {
	if r.when != nil {
		holds, err := r.when.truth(c)
		switch {
		case err != nil:
			ch.fault(r.when, err)
		case !holds:
			return Charge{}, false
		}
	}
	if r.owner != nil {
		ch.Partition = r.owner(c)
	} else {
		key, err := r.key.text(c)
		ch.Partition = key
		if err != nil {
			ch.Partition = keyless
			ch.fault(r.key, err)
		}
	}
	if ch.Partition == "" {
		return Charge{}, false
	}
	ch.Max, ch.Count = r.most, 1
	if r.max != nil {
		most, err := r.max.number(c, math.Floor)
		ch.Max = min(registry.MaxQuota, max(0, most))
		if err != nil {
			ch.Max = -1
			ch.fault(r.max, err)
		}
	}
	switch {
	case r.Bytes():
		ch.Count = max(1, c.Bytes)
	case r.count != nil:
		count, err := r.count.amount(c)
		ch.Count = min(registry.MaxQuota+1, count)
		if err != nil {
			ch.Count = 1
			ch.fault(r.count, err)
		}
	}
	return ch, true
}

func (ch *Charge) fault(e *expression, err error) {
	ch.Faults = append(ch.Faults, Fault{Part: e.part, Why: why(err)})
}

// value is the result for c, of an optional one its value or null.
func (e *expression) value(c *Call) (ref.Val, error) {
	v, _, err := e.program.Eval(c)
	if err != nil {
		return nil, err
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return types.NullValue, nil
		}
		v = o.GetValue()
	}
	return v, nil
}

// truth is the result of a condition.
func (e *expression) truth(c *Call) (bool, error) {
	v, err := e.value(c)
	if err != nil {
		return false, err
	}
	holds, ok := v.(types.Bool)
	if !ok {
		return false, errNotBool
	}
	return bool(holds), nil
}

// text is the result as a partition key: "" for null. Numbers and truth values are
// what they look like, so that 1 and "1" are one key.
func (e *expression) text(c *Call) (string, error) {
	v, err := e.value(c)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case types.Null:
		return "", nil
	case types.String:
		return bounded(string(v)), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Double:
		if v == 0 { // -0 too
			return "0", nil
		}
		return bounded(strconv.FormatFloat(float64(v), 'f', -1, 64)), nil
	case types.Bool:
		return strconv.FormatBool(bool(v)), nil
	}
	return "", errNotText
}

// longestKey is the longest text that is kept as a partition key: of any other, and
// of one that begins like what is made here, its SHA-256.
const longestKey = 128

func bounded(key string) string {
	if len(key) <= longestKey && (key == "" || key[0] != keyless[0]) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return keyless + string(sum[:])
}

// number is the result as a whole number. What is beyond what can be counted is cut
// to that.
func (e *expression) number(c *Call, round func(float64) float64) (int64, error) {
	v, err := e.value(c)
	if err != nil {
		return 0, err
	}
	const beyond = registry.MaxQuota + 1
	switch v := v.(type) {
	case types.Int:
		return max(-beyond, min(beyond, int64(v))), nil
	case types.Uint:
		return int64(min(beyond, uint64(v))), nil
	case types.Double:
		f := float64(v)
		if math.IsNaN(f) {
			return 0, errNotNumber
		}
		return int64(max(-beyond, min(beyond, round(f)))), nil
	}
	return 0, errNotNumber
}

// amount is the result as what a call counts for.
func (e *expression) amount(c *Call) (int64, error) {
	n, err := e.number(c, outward)
	if err == nil && n < 0 {
		err = errNegative
	}
	return n, err
}

// outward rounds away from 0, so that what is a little less than nothing stays less.
func outward(f float64) float64 {
	if f < 0 {
		return math.Floor(f)
	}
	return math.Ceil(f)
}

var (
	errNotBool   = errors.New("its result is neither true nor false")
	errNotText   = errors.New("its result is neither a text nor null")
	errNotNumber = errors.New("its result is no number")
	errNegative  = errors.New("its result is negative")
)
