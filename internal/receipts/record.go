package receipts

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"
)

// Kind says what a record is about. The list is closed: a reader that meets
// another kind is older than the log and must say so instead of guessing.
type Kind string

// The kinds of record.
const (
	KindIntent    Kind = "intent"    // an admitted call, durable before the upstream is called
	KindOutcome   Kind = "outcome"   // how an admitted call ended
	KindRefusal   Kind = "refusal"   // a call that the gateway refused
	KindRecovery  Kind = "recovery"  // bytes of a torn tail that were cut on start
	KindKey       Kind = "key"       // the verifier key of the log; always its first entry
	KindHeads     Kind = "heads"     // the heads of tenants' trees; written by the log itself
	KindSummary   Kind = "summary"   // refusals counted instead of recorded one by one
	KindGap       Kind = "gap"       // attempts answered while the log could not be written; written by the log itself
	KindHeartbeat Kind = "heartbeat" // nothing else was written for a minute; written by the log itself
	KindSeal      Kind = "seal"      // the log was stopped in good order; written by the log itself
	KindPruned    Kind = "pruned"    // entries are about to be removed; written by the log itself
)

// Valid reports whether k is on the closed list.
func (k Kind) Valid() bool {
	switch k {
	case KindIntent, KindOutcome, KindRefusal, KindRecovery, KindKey,
		KindSummary, KindGap, KindHeads, KindHeartbeat, KindSeal, KindPruned:
		return true
	}
	return false
}

// own reports whether records of k are written by the log itself alone.
func (k Kind) own() bool {
	return k == KindHeads || k == KindHeartbeat || k == KindSeal || k == KindPruned
}

// Ending says how an admitted call ended. The list is closed.
type Ending string

// The endings of a call.
const (
	Complete        Ending = "complete"         // the answer went out to its last byte
	ClientCancelled Ending = "client_cancelled" // the agent hung up
	SlowClient      Ending = "slow_client"      // the agent took no bytes for too long
	UpstreamAborted Ending = "upstream_aborted" // the upstream died or reset the transfer
	Timeout         Ending = "timeout"          // the upstream stayed silent, or the stream grew too old
	Revoked         Ending = "revoked"          // the key or delegation was taken back while it ran
	Blocked         Ending = "blocked"          // the tenant was blocked while it ran
	Budget          Ending = "budget"           // a byte budget ran out
	Panic           Ending = "panic"            // a fault in the gateway
	Shutdown        Ending = "shutdown"         // the gateway was stopped
	OutcomeUnknown  Ending = "outcome_unknown"  // the process died in between; written on the next start
)

// Valid reports whether e is on the closed list.
func (e Ending) Valid() bool {
	return slices.Contains(endings, e)
}

var endings = []Ending{Complete, ClientCancelled, SlowClient, UpstreamAborted, Timeout, Revoked,
	Blocked, Budget, Panic, Shutdown, OutcomeUnknown}

// Endings returns the closed list.
func Endings() []Ending { return slices.Clone(endings) }

// The two decisions.
const (
	Allowed = "allowed"
	Refused = "refused"
)

// validDecision reports whether d is one of the two, or none: of a record that
// is about no call.
func validDecision(d string) bool { return d == "" || d == Allowed || d == Refused }

// ReasonFlood is that of a summary: there were more than are recorded one by one.
const ReasonFlood = "flood"

// Begins reports whether a record is one that another of its id will end: an
// intent, and the beginning of a summary.
func (r *Record) Begins() bool {
	return r.Kind == KindIntent || r.Kind == KindSummary && r.Reason == ReasonFlood && r.Ending == ""
}

// refuses reports whether records of kind k are of refusals.
func (k Kind) refuses() bool { return k == KindRefusal || k == KindSummary }

// counts reports whether records of kind k stand for a number of attempts.
func (k Kind) counts() bool { return k == KindGap || k == KindSummary }

// Recovery describes the bytes that were cut from a torn tail. They are kept in
// the quarantine folder of the log.
type Recovery struct {
	File   string // the segment that was cut, its base name
	Offset int64  // where the cut was made
	Bytes  int64  // how many bytes were cut
	SHA256 string // of those bytes, lower-case hex
	Kept   int64  // records of the torn batch that were whole and stayed in the log
}

// Record is one leaf of the log. A zero field is left out of the stored text,
// except where FORMAT.md says otherwise. The zero Record is not valid: Kind
// has to be set.
//
// Nothing in a record may be a secret, the value of a parameter, or part of a
// body; the log cannot check that.
type Record struct {
	Kind Kind
	ID   string    // the receipt's id; Append makes one where it is empty
	Time time.Time // Append takes it from the log's clock where it is zero

	Caller    string   // who called: a key id, an issuer and subject, or a keyed hash
	Key       string   // id of the key, never the key
	Tenant    string   // whom it is charged to, for example "tenant:acme"
	Principal string   // the human on whose behalf
	Chain     []string // of the delegation's links, as FORMAT.md spells them

	Service, Action, Method string
	Params                  *ParamsHash

	Decision string // Allowed or Refused
	Code     string // of a refusal or failure, from the gateway's closed list
	Limit    string // the limit that decided
	Status   int    // the status that the agent got
	In, Out  int64  // bytes of the request's and of the answer's body
	Messages int64  // of a WebSocket: those of the agent that were charged and passed on
	Ending   Ending

	QueueMicros, UpstreamMicros, TotalMicros int64

	RequestID, ClientAddr, Replica string

	// Interval marks a record that was acknowledged before it was on disk.
	// The log sets it; a caller's value is ignored.
	Interval bool

	Recovery *Recovery // of a recovery record
	VKey     string    // of a key record: the verifier key
	Heads    *Heads    // of a heads record
	Pruned   *Pruned   // of a pruned record

	// Of a gap or a summary, which have to have both: how many attempts it stands
	// for, and when the first and the last of them was.
	From, To time.Time
	Count    uint64

	// Reason, of those in FORMAT.md, is why the attempts of a gap or a summary have no
	// records of their own; or, of a refusal, why, where Code does not say all.
	Reason string

	Cut bool // the record was over the size limit and its long texts were shortened

	// room is what the log keeps for the record that ends this one's attempt.
	room int64
	// passed is where the attempt is counted that was let through and may yet have a record.
	passed *missed
	// told is what the file of what is unrecorded says of this one.
	told *noted

	// Seq is the record's place among those of its tenant, from 1 without a
	// gap. The log sets it; a caller's value is ignored.
	Seq uint64
}

// NewID returns a new receipt id: 128 random bits in hex. They are also what
// keeps a leaf hash from being guessed from what a record is likely to say.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	var text [2 * len(b)]byte
	hex.Encode(text[:], b[:])
	return string(text[:])
}
