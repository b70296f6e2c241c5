package ratelimit

import (
	"math"
	"strconv"
	"sync/atomic"
)

// Ref is a partition key under the limits that now hold for it. It remembers
// where its state is, so that whoever keeps a Ref pays for no look-up: make one
// for each key and tenant when the limits are read, and a new one when they
// change. The state is the partition key's, not the Ref's: any number of Refs of
// one name, under whatever limits, charge the same bucket, and a Ref goes on
// working when its entry is evicted.
//
// A Ref belongs to the first limiter that it is used with. It is safe for
// concurrent use and must not be copied.
type Ref struct {
	// A line of the processor's cache, and no more: every call reads three.
	entry     atomic.Pointer[entry]
	limit     Limit
	since     int64
	slots     int64
	partition string
	kind      Kind
	weight    uint16 // 0 is 1
	table     Table
}

// NewRef returns the bucket of partition in table under limit, which may be
// unlimited. It creates no entry.
func NewRef(table Table, kind Kind, partition string, limit Limit) *Ref {
	return &Ref{table: table, kind: kind, partition: partition, limit: limit, since: whenAsked}
}

// NewTenant returns a tenant: its bucket under limit, and its calls in flight
// under a cap of slots, of which 0 is none. It creates no entry.
func NewTenant(table Table, partition string, limit Limit, slots int64) *Ref {
	return &Ref{table: table, kind: KindTenant, partition: partition, limit: limit, slots: slots, since: whenAsked}
}

// whenAsked is no time: the limit is in force from when it is first asked for.
const whenAsked = math.MaxInt64

// From says since when the limit of r has been in force, and returns r. What was
// there before fills up at its old rate until then, whenever r is first asked.
// Without it that is until r is. Of limits that came and went while nobody asked
// nothing is known: the bucket filled up at the rate that it last had. Call it
// before r is used.
func (r *Ref) From(since int64) *Ref {
	r.since = since
	return r
}

// Since is what From said.
func (r *Ref) Since() int64 { return r.since }

// MaxWeight is the most that a tenant can weigh.
const MaxWeight = math.MaxUint16

// Weighing gives a tenant a weight from 1 to MaxWeight, by which it shares the slots
// of service and process with others that wait for them, and returns r. Without it
// that is 1. Call it before r is used.
func (r *Ref) Weighing(weight int) *Ref {
	r.weight = uint16(min(MaxWeight, max(1, weight)))
	return r
}

func (r *Ref) share() int64 { return max(1, int64(r.weight)) }

func (r *Ref) id() id { return id{r.kind, r.partition} }

// Partition is the partition key that r is of.
func (r *Ref) Partition() string { return r.partition }

// Kind is which limit r is of.
func (r *Ref) Kind() Kind { return r.kind }

// Limit is the limit that r is under.
func (r *Ref) Limit() Limit { return r.limit }

// Slots is the cap of calls in flight that r, which is a tenant, is under; 0 is none.
func (r *Ref) Slots() int64 { return r.slots }

// fetch has the entry come from memory while others do: past a lock, which each
// of them has, a processor does not look ahead.
func (r *Ref) fetch() {
	if r == nil {
		return
	}
	if e := r.entry.Load(); e != nil {
		e.drained.Load()
	}
}

// Service is a service under its cap of calls in flight. What is said of a Ref
// holds of it too.
type Service struct {
	pool  atomic.Pointer[pool]
	name  string
	slots int64
	away  Policy
}

// OnStoreFailure says what holds for calls of the service while the store is away that
// replicas share, and returns s. Call it before s is used.
func (s *Service) OnStoreFailure(p Policy) *Service {
	s.away = p
	return s
}

// NewService returns the service of that name under a cap of slots; 0 is none.
func NewService(name string, slots int64) *Service { return &Service{name: name, slots: slots} }

// Name is the service's name.
func (s *Service) Name() string { return s.name }

// ServiceBucket is the partition key of the bucket of one key at one service. No
// two pairs share one, whatever bytes the names hold.
func ServiceBucket(key, service string) string {
	return strconv.Itoa(len(key)) + ":" + key + "/" + service
}
