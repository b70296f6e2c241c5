// Package explain is the answer to an operator's question: which limits and
// rules would a call meet, in which order, what are they worth, and where does
// each number come from?
//
// The gateway works it out, from what it decides by; the command line prints it
// and the admin API serves it. Nothing in an Answer is a secret, and nothing of
// it decides.
package explain

import "strings"

// Question is a call that somebody might make.
type Question struct {
	Key, Service, Action string // Key: the id of a key, or oidc:ISSUER#SUBJECT
	Claims               string // JSON: what else a caller's token says; "": nothing
	User                 string // on whose behalf; "": nobody's
	ClientIP             string // the caller's address; "": not said
}

// IsCaller reports whether a key of a Question is the name of a caller of an issuer: no
// key's id has a colon.
func IsCaller(key string) bool { return strings.HasPrefix(key, "oidc:") }

// What an Answer says of its limits: whose they are.
const (
	PerProcess = "per process: N replicas admit up to N times as much"
	Shared     = "shared: all replicas with this AGENTGATE_REDIS_URL together admit what one may; the process's own slots and queue are each one's"
	Alone      = "each replica's own for now: those that all replicas share cannot be asked, as the log says, and each goes by what holds then"
)

// Answer says what such a call meets. What it would meet after a step that
// refuses it is left out.
type Answer struct {
	Key       string `json:"key"`
	KeyFrom   string `json:"key_source"` // a place in the registry, or the state store
	Service   string `json:"service"`
	Action    string `json:"action"`
	User      string `json:"user,omitempty"`
	Tenant    string `json:"tenant,omitempty"` // whom it is charged to; absent where it is refused before that
	LimitsAre string `json:"limits_are"`

	Refused *Refusal `json:"refused"` // null: nothing that is known before the call refuses it
	Limits  []Limit  `json:"limits"`  // in the order of the steps that ask them
	Rules   []Rule   `json:"rules"`   // likewise: every rule of the registry
}

// Refusal is a step that refuses the call whatever its limits hold.
type Refusal struct {
	Step   int    `json:"step"`
	Code   string `json:"code"`
	Status int    `json:"status"`
	Detail string `json:"detail"` // what the agent is told
	Why    string `json:"why"`    // what the operator should know besides
	Source string `json:"source,omitempty"`
}

// Limit is a bucket, a cap of calls in flight, or the queue of those who wait for a
// slot of one, and whom it is charged to.
// One that is off is said to be: then all its numbers are absent.
type Limit struct {
	Step      int    `json:"step"`
	Limit     string `json:"limit"`      // as a refusal names it
	Policy    string `json:"policy"`     // as RateLimit-Policy and violated-policies name it
	ChargedTo string `json:"charged_to"` // the partition key, or what else it is of
	Off       bool   `json:"off"`

	RPS            float64 `json:"rps,omitempty"`
	Burst          int     `json:"burst,omitempty"`
	BurstDefaulted bool    `json:"burst_defaulted,omitempty"`
	MaxInflight    int     `json:"max_inflight,omitempty"`
	MaxQueued      int     `json:"max_queued,omitempty"` // calls that may wait for a slot of any cap, so long:
	Wait           string  `json:"wait,omitempty"`
	Bytes          int64   `json:"bytes,omitempty"` // that tunnels may carry in a window of:
	Window         string  `json:"window,omitempty"`
	Weight         int     `json:"weight,omitempty"` // the tenant's share of a cap that several wait for

	Source       string `json:"source,omitempty"`       // of the rate, the cap or the queue
	BurstSource  string `json:"burst_source,omitempty"` // where it is another
	WaitSource   string `json:"wait_source,omitempty"`
	WeightSource string `json:"weight_source,omitempty"` // absent where nobody gives one

	Level *Level `json:"level,omitempty"` // absent where no running gateway was asked
}

// Level is how a limit stands in a running gateway.
type Level struct {
	Remaining *int64 `json:"remaining,omitempty"` // tokens, slots of a cap, or bytes
	InFlight  *int64 `json:"in_flight,omitempty"` // of a cap, or where there is none
	Queued    *int64 `json:"queued,omitempty"`    // calls that wait
}

// Rule is an extra limit of the registry, in its own words.
type Rule struct {
	Step           int    `json:"step"`
	Name           string `json:"name"`
	Key            string `json:"key"`
	Window         string `json:"window"`
	Max            string `json:"max"`
	Count          string `json:"count"`
	When           string `json:"when,omitempty"`
	Cost           bool   `json:"cost,omitempty"`
	Mode           string `json:"mode"`
	OnStoreFailure string `json:"on_store_failure"`
	Source         string `json:"source"`
	Applies        string `json:"applies"` // whether to this call, as far as that can be told

	Level *RuleLevel `json:"level,omitempty"` // absent where no running gateway was asked, or it cannot be told for whom
}

// RuleLevel is how the count stands that the call would meet.
type RuleLevel struct {
	Counted int64 `json:"counted"` // in this window
	Max     int64 `json:"max"`
	EndsMS  int64 `json:"window_ends_ms"` // in so many milliseconds
}
