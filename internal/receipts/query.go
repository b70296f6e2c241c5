package receipts

import (
	"bytes"
	"cmp"
	"math"
	"strings"
	"time"
)

// Query says which receipts are wanted. A zero field wants all.
type Query struct {
	// Tenant is a tenant's name, in full (human:user-42) or short (acme for tenant:acme).
	Tenant string
	// Key is a key's id; or, of who came to an open service without one, what he is
	// known by.
	Key, Service string
	Decision     string // Allowed or Refused
	Why          string // a code, an ending, or Running
	Request      string // the request's id; no index has it
	From, To     time.Time

	Oldest bool   // the oldest first, not the newest
	Cursor uint64 // a Page's Next; 0 begins
	Limit  int    // how many at most; 0: all

	// MaxScan, where set, is how many bytes of the log may be read that no index
	// covers. Where it takes more, the error is ErrNoIndex.
	MaxScan int64
}

// Running is why a receipt is as it is that has an intent alone.
const Running = "running"

// Wants reports whether q wants the record, whatever is known of others.
func (q *Query) Wants(r *Record) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(q.tenant(), r.Tenant) && is(q.Key, r.who()) && is(q.Service, r.Service) && is(q.Request, r.RequestID) && is(q.Decision, r.Decision) &&
		(is(q.Why, r.Code) || q.Why == string(r.Ending) || q.Why == Running && r.Kind == KindIntent) &&
		!r.Time.Before(q.From) && (q.To.IsZero() || r.Time.Before(q.To))
}

// who is the key that a record is of, or the caller who had none.
func (r *Record) who() string { return cmp.Or(r.Key, r.Caller) }

// tenant is the full name: a short one has no colon in it.
func (q *Query) tenant() string {
	if q.Tenant == "" || strings.Contains(q.Tenant, ":") {
		return q.Tenant
	}
	return "tenant:" + q.Tenant
}

// passed reports whether the cursor has left that entry behind.
func (q *Query) passed(index uint64) bool {
	if q.Oldest {
		return index < q.Cursor
	}
	return q.Cursor > 0 && index >= q.Cursor
}

// micros are From and To, as blocks have them: rounded outwards.
func (q *Query) micros() (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	if !q.From.IsZero() {
		from = q.From.UnixMicro()
	}
	if !q.To.IsZero() {
		to = q.To.UnixMicro() + 1
	}
	return from, to
}

// hashes are those of the values that a receipt has to have, one at least.
func (q *Query) hashes() []uint32 {
	var list []uint32
	for _, v := range []struct {
		of    trait
		value string
	}{{ofTenant, q.tenant()}, {ofKey, q.Key}, {ofService, q.Service}, {ofDecision, q.Decision}, {ofWhy, q.Why}} {
		if v.value != "" {
			list = append(list, valueHash(v.of, v.value))
		}
	}
	if list == nil {
		list = append(list, valueHash(ofAll, ""))
	}
	return list
}

// needles are what stands in the line of every record that q wants: a text has one
// spelling. To look for them costs a tenth of reading the record.
func (q *Query) needles() (list [][]byte) {
	for _, v := range []struct{ member, value string }{
		{`"tenant":`, q.tenant()}, {``, q.Key}, {`"service":`, q.Service}, {`"decision":`, q.Decision}, {`"request_id":`, q.Request}, {``, q.Why},
	} {
		if v.value != "" && v.value != Running {
			list = append(list, appendText([]byte(v.member), v.value, 0))
		}
	}
	return list
}

func holdsAll(line []byte, needles [][]byte) bool {
	for _, n := range needles {
		if !bytes.Contains(line, n) {
			return false
		}
	}
	return true
}
