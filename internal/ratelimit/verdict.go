package ratelimit

import (
	"iter"
	"math/bits"
	"time"
)

// Kind says which limit is meant.
type Kind uint8

// The kinds, in the order in which they are reported. The last three are slots.
const (
	KindKey         Kind = iota + 1 // a key's bucket
	KindCaller                      // the bucket of a caller of an open service
	KindAddress                     // a client address's bucket
	KindTenant                      // a tenant's bucket
	KindService                     // the bucket of one key at one service
	KindRule                        // a rule's windows
	KindTunnelBytes                 // what a caller's tunnels may carry; counted elsewhere
	KindTenantSlots
	KindServiceSlots
	KindProcessSlots
	kinds = int(KindProcessSlots) + 1
)

// Kinds yields every kind.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := KindKey; int(k) < kinds && yield(k); k++ {
		}
	}
}

// String is the limit's name as users are told it. Kinds of one owner share a
// name: a tenant's bucket and its slots are both "tenant".
func (k Kind) String() string {
	switch k {
	case KindKey:
		return "key"
	case KindCaller:
		return "caller"
	case KindAddress:
		return "address"
	case KindTenant, KindTenantSlots:
		return "tenant"
	case KindService, KindServiceSlots:
		return "service"
	case KindRule:
		return "rule"
	case KindTunnelBytes:
		return "tunnel_bytes"
	case KindProcessSlots:
		return "process"
	}
	return "none"
}

// Gauge reports whether the kind counts slots in use rather than tokens.
func (k Kind) Gauge() bool { return k >= KindTenantSlots }

// Outcome is how a call was decided.
type Outcome uint8

const (
	// Admitted: the tokens and slots asked for are taken.
	Admitted Outcome = iota
	// RateLimited: some bucket is empty. Nothing of it, or of any other, was taken.
	RateLimited
	// ConcurrencyLimited: every bucket had a token and some slots are all in
	// use. Nothing was taken, and the key's token is back.
	ConcurrencyLimited
	// Blocked: an operator blocked the tenant.
	Blocked
	// Queued: every bucket had a token, which is taken, and some slots are all in
	// use, which the call waits for. The verdict names their caps.
	Queued
	// Unavailable: what decides it cannot be asked, and nothing else is to. Nothing was
	// taken; the verdict says nothing of any limit.
	Unavailable

	again // to be decided once more; nobody is told
)

func (o Outcome) String() string {
	return [...]string{"admitted", "rate_limited", "concurrency_limited", "blocked", "queued", "unavailable"}[o]
}

// Reading is one limit's level, taken within the decision that it belongs to.
type Reading struct {
	Kind      Kind
	Quota     int64         // the burst, or the cap of a gauge
	Remaining int64         // between 0 and Quota
	Window    time.Duration // in which the whole quota comes back; 0 for a gauge
	Next      time.Duration // until one more token, or a rule's next window; 0 when full, and for a gauge
	Gauge     bool          // slots in use: no time at which they come back
	Name      string        // of a rule
}

// Verdict is the answer to a call. It is a plain value, without pointers into
// the limiter. The zero Verdict is Admitted and says nothing of any limit.
type Verdict struct {
	Outcome Outcome
	// Limit is the one that decided a refusal: of those violated the one with
	// the longest wait, and before them one that no wait helps with. 0 when
	// admitted. Rule is the name, if it is a rule.
	Limit Kind
	Rule  string
	// Wait is the time after which this same call would be admitted were nobody
	// else calling, without jitter; an estimate for ConcurrencyLimited. At
	// least 1 ns on a refusal, unless Never.
	Wait time.Duration
	// Never: no wait helps.
	Never bool

	n        uint8
	violated uint16 // a bit per Kind
	kinds    [6]Kind
	samples  [6]sample
}

// sample is a Reading before its divisions, which most callers never ask for.
type sample struct {
	limit Limit // of a gauge: Burst is the cap
	level int64 // tat - now; of a gauge: slots in use
}

// Violated yields every limit that refused, not only the one that decided, in
// the order of the kinds.
func (v *Verdict) Violated() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for set := v.violated; set != 0; set &= set - 1 {
			if !yield(Kind(bits.TrailingZeros16(set))) {
				return
			}
		}
	}
}

// Readings yields the level of every limit that the call reached and that is
// on, after the decision.
func (v *Verdict) Readings() iter.Seq[Reading] {
	return func(yield func(Reading) bool) {
		for i := range v.samples[:v.n] {
			if !yield(v.samples[i].reading(v.kinds[i])) {
				return
			}
		}
	}
}

// refuse adds a refusal to the verdict. A bucket's outranks a cap's; of equals
// the one with the longer wait decides, and of those the first.
func (v *Verdict) refuse(o Outcome, k Kind, wait time.Duration) {
	v.violate(k)
	if o == ConcurrencyLimited && v.Outcome == RateLimited {
		return
	}
	if v.Outcome == Admitted || wait > v.Wait {
		v.Limit, v.Wait = k, wait
	}
	v.Outcome = o
}

// refuseByRule adds the refusal of a rule, after those of buckets and before those
// of caps. One that no wait helps with decides.
func (v *Verdict) refuseByRule(name string, wait time.Duration, never bool) {
	v.violate(KindRule)
	if v.Outcome == Admitted || never && !v.Never || never == v.Never && wait > v.Wait {
		v.Limit, v.Rule = KindRule, name
	}
	v.Outcome, v.Wait, v.Never = RateLimited, max(v.Wait, wait), v.Never || never
}

// lacks is which slots it was that refused.
func (v *Verdict) lacks() lacking {
	has := func(k Kind) bool { return v.violated&(1<<k) != 0 }
	return lacking{tenant: has(KindTenantSlots), service: has(KindServiceSlots), process: has(KindProcessSlots)}
}

func (v *Verdict) violate(k Kind) { v.violated |= 1 << k }

func (v *Verdict) sample(k Kind, l Limit, level int64) {
	v.kinds[v.n], v.samples[v.n] = k, sample{l, level}
	v.n++
}

// sampleSlots notes how many slots of a cap are in use; without a cap, nothing.
func (v *Verdict) sampleSlots(k Kind, used, most int64) {
	if most > 0 {
		v.sample(k, Limit{Burst: most}, used)
	}
}

func (s sample) reading(k Kind) Reading {
	if k.Gauge() {
		return Reading{Kind: k, Quota: s.limit.Burst, Remaining: max(0, s.limit.Burst-s.level), Gauge: true}
	}
	r := Reading{Kind: k, Quota: s.limit.Burst, Window: s.limit.Window()}
	if s.limit.Unlimited() {
		return r
	}
	r.Remaining = s.limit.left(s.level, 0) / s.limit.Interval
	if s.level > 0 {
		// Not from left, which is cut at 0: a bucket that looks overdrawn to a
		// stale clock owes the difference too.
		r.Next = time.Duration((r.Remaining+1)*s.limit.Interval - (s.limit.window() - s.level))
	}
	return r
}
