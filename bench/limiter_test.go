package bench

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/ratelimit"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"
)

// Every contender decides the same calls: a token of the key, one of its tenant,
// one of the (key, service) pair, one of the tenant's 32 slots, and its release.
// A tenant has 10 keys. Time is passed in, as the gateway reads the clock once a
// request anyway. None of the peers gives tokens back when a later limit refuses,
// bounds the release to once, or skips entries with calls in flight.
type contender struct {
	name string
	make func(keys int) limiter
}

type limiter interface {
	// call runs a whole call by key k and reports whether it was admitted.
	call(k int, now int64) bool
	// denied asks for a token of key k, which is drained.
	denied(k int, now int64) bool
}

var contenders = []contender{
	{"agentgw", func(n int) limiter { return newOurs(n) }},
	{"four locks and nothing else", func(n int) limiter { return newLocks(n) }},
	{"x/time/rate, sync.Map", func(n int) limiter { return newTimeRate(n, given) }},
	{"x/time/rate, sync.Map, by its own clock", func(n int) limiter { return newTimeRate(n, own) }},
	{"golang-lru, one mutex", func(n int) limiter { return newMutexLRU(n) }},
	{"throttled, memstore", func(n int) limiter { return newThrottled(n) }},
}

const perTenant, slots = 10, 32

// A rate and a burst that never refuse, and a rate that always does.
var (
	wide   = must(ratelimit.NewLimit(1e9, 1<<30))
	narrow = must(ratelimit.NewLimit(1e-6, 1))
)

func must(l ratelimit.Limit, err error) ratelimit.Limit {
	if err != nil {
		panic(err)
	}
	return l
}

// names are made ahead: a gateway has them at hand too.
type names struct{ keys, tenants, pairs []string }

func newNames(n int) names {
	var s names
	for i := range n {
		key := fmt.Sprintf("key-%d", i)
		s.keys = append(s.keys, key)
		s.pairs = append(s.pairs, ratelimit.ServiceBucket(key, "search"))
		s.tenants = append(s.tenants, fmt.Sprintf("tenant:%d", i/perTenant))
	}
	return s
}

// ours holds what a gateway holds of each key: where its buckets are.
type ours struct {
	l        *ratelimit.Local
	accounts []account
	service  *ratelimit.Service
}

type account struct{ key, tenant, pair, dry *ratelimit.Ref }

func newOurs(n int) *ours {
	o := &ours{l: ratelimit.NewLocal(ratelimit.Options{TableSize: max(100_000, 4*n)}), service: ratelimit.NewService("search", 0)}
	var tenant *ratelimit.Ref
	for i := range n {
		if i%perTenant == 0 {
			tenant = ratelimit.NewTenant(ratelimit.Registered, fmt.Sprintf("tenant:%d", i/perTenant), wide, slots)
		}
		key := fmt.Sprintf("key-%d", i)
		o.accounts = append(o.accounts, account{
			key:    ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, key, wide),
			tenant: tenant,
			pair:   ratelimit.NewRef(ratelimit.Registered, ratelimit.KindService, ratelimit.ServiceBucket(key, "search"), wide),
			dry:    ratelimit.NewRef(ratelimit.Addresses, ratelimit.KindAddress, key, narrow),
		})
	}
	return o
}

func (o *ours) call(k int, now int64) bool {
	a := &o.accounts[k]
	c := o.l.Take(a.key, now)
	if c.Refused() {
		return false
	}
	t, v := o.l.Admit(c, ratelimit.Admission{Tenant: a.tenant, Bucket: a.pair, Service: o.service}, now)
	defer t.Release()
	return v.Outcome == ratelimit.Admitted
}

func (o *ours) denied(k int, now int64) bool {
	return o.l.Take(o.accounts[k].dry, now).Refused()
}

// timeRate is golang.org/x/time/rate with a sync.Map per limit, never evicted.
type timeRate struct {
	names
	at                                  func(now int64) time.Time
	keys, tenants, pairs, inFlight, dry sync.Map
}

func newTimeRate(n int, at func(int64) time.Time) *timeRate {
	return &timeRate{names: newNames(n), at: at}
}

var origin = time.Unix(1_800_000_000, 0)

// given is the request's own timestamp; own is what Limiter.Allow reads.
func given(now int64) time.Time { return origin.Add(time.Duration(now)) }
func own(int64) time.Time       { return time.Now() }

func bucketOf(m *sync.Map, name string, r rate.Limit, burst int) *rate.Limiter {
	if l, ok := m.Load(name); ok {
		return l.(*rate.Limiter)
	}
	l, _ := m.LoadOrStore(name, rate.NewLimiter(r, burst))
	return l.(*rate.Limiter)
}

func (t *timeRate) call(k int, now int64) bool {
	if !bucketOf(&t.keys, t.names.keys[k], 1e9, 1<<30).AllowN(t.at(now), 1) {
		return false
	}
	if !bucketOf(&t.tenants, t.names.tenants[k], 1e9, 1<<30).AllowN(t.at(now), 1) {
		return false
	}
	if !bucketOf(&t.pairs, t.names.pairs[k], 1e9, 1<<30).AllowN(t.at(now), 1) {
		return false
	}
	n, ok := t.inFlight.Load(t.names.tenants[k])
	if !ok {
		n, _ = t.inFlight.LoadOrStore(t.names.tenants[k], new(atomic.Int64))
	}
	count := n.(*atomic.Int64)
	defer count.Add(-1)
	return count.Add(1) <= slots
}

func (t *timeRate) denied(k int, now int64) bool {
	return !bucketOf(&t.dry, t.names.keys[k], 1e-6, 1).AllowN(t.at(now), 1)
}

// locks is the least that a call costs while key, tenant and pair have a lock
// each, and the release needs the tenant's again.
type locks struct {
	keys, pairs, tenants []padded
}

type padded struct {
	sync.Mutex
	_ [56]byte
}

func newLocks(n int) *locks {
	return &locks{make([]padded, n), make([]padded, n), make([]padded, n/perTenant+1)}
}

func (l *locks) call(k int, _ int64) bool {
	key, tenant, pair := &l.keys[k], &l.tenants[k/perTenant], &l.pairs[k]
	key.Lock()
	key.Unlock() // nothing is guarded: the lock is what is measured
	tenant.Lock()
	pair.Lock()
	pair.Unlock()
	tenant.Unlock()
	tenant.Lock()
	defer tenant.Unlock()
	return true
}

func (l *locks) denied(k int, _ int64) bool {
	l.keys[k].Lock()
	defer l.keys[k].Unlock()
	return true
}

// mutexLRU is one mutex over three simplelru caches with buckets in floats.
type mutexLRU struct {
	names
	mu                        sync.Mutex
	keys, tenants, pairs, dry *simplelru.LRU[string, *floatBucket]
}

type floatBucket struct {
	tokens   float64
	last     int64
	inFlight int
}

func newMutexLRU(n int) *mutexLRU {
	m := &mutexLRU{names: newNames(n)}
	for _, c := range []**simplelru.LRU[string, *floatBucket]{&m.keys, &m.tenants, &m.pairs, &m.dry} {
		*c, _ = simplelru.NewLRU[string, *floatBucket](max(100_000, 4*n), nil)
	}
	return m
}

func (m *mutexLRU) bucketLocked(c *simplelru.LRU[string, *floatBucket], name string, r, burst float64, now int64) *floatBucket {
	b, ok := c.Get(name)
	if !ok {
		b = &floatBucket{tokens: burst, last: now}
		c.Add(name, b)
	}
	b.tokens = math.Min(burst, b.tokens+float64(now-b.last)*1e-9*r)
	b.last = now
	return b
}

func (m *mutexLRU) call(k int, now int64) bool {
	m.mu.Lock()
	key := m.bucketLocked(m.keys, m.names.keys[k], 1e9, 1<<30, now)
	tenant := m.bucketLocked(m.tenants, m.names.tenants[k], 1e9, 1<<30, now)
	pair := m.bucketLocked(m.pairs, m.names.pairs[k], 1e9, 1<<30, now)
	ok := key.tokens >= 1 && tenant.tokens >= 1 && pair.tokens >= 1 && tenant.inFlight < slots
	if ok {
		key.tokens--
		tenant.tokens--
		pair.tokens--
		tenant.inFlight++
	}
	m.mu.Unlock()
	if ok {
		m.mu.Lock()
		tenant.inFlight--
		m.mu.Unlock()
	}
	return ok
}

func (m *mutexLRU) denied(k int, now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bucketLocked(m.dry, m.names.keys[k], 1e-6, 1, now)
	if b.tokens < 1 {
		return true
	}
	b.tokens--
	return false
}

// gcras is github.com/throttled/throttled, by the request's own timestamp, with a
// store per limit that evicts nothing.
type gcras struct {
	names
	now                       atomic.Int64
	keys, tenants, pairs, dry *throttled.GCRARateLimiterCtx
	inFlight                  sync.Map
}

func newThrottled(n int) *gcras {
	t := &gcras{names: newNames(n)}
	of := func(q throttled.RateQuota) *throttled.GCRARateLimiterCtx {
		store, err := memstore.New(0)
		if err != nil {
			panic(err)
		}
		store.SetTimeNow(func() time.Time { return origin.Add(time.Duration(t.now.Load())) })
		l, err := throttled.NewGCRARateLimiterCtx(throttled.WrapStoreWithContext(store), q)
		if err != nil {
			panic(err)
		}
		return l
	}
	open := throttled.RateQuota{MaxRate: throttled.PerSec(1e9), MaxBurst: 1 << 30}
	t.keys, t.tenants, t.pairs = of(open), of(open), of(open)
	t.dry = of(throttled.RateQuota{MaxRate: throttled.PerDuration(1, 1e6*time.Second)})
	return t
}

func (t *gcras) admits(l *throttled.GCRARateLimiterCtx, name string) bool {
	limited, _, err := l.RateLimitCtx(context.Background(), name, 1)
	return !limited && err == nil
}

func (t *gcras) call(k int, now int64) bool {
	t.now.Store(now)
	tenant := t.names.tenants[k]
	if !t.admits(t.keys, t.names.keys[k]) || !t.admits(t.tenants, tenant) || !t.admits(t.pairs, t.names.pairs[k]) {
		return false
	}
	n, ok := t.inFlight.Load(tenant)
	if !ok {
		n, _ = t.inFlight.LoadOrStore(tenant, new(atomic.Int64))
	}
	count := n.(*atomic.Int64)
	defer count.Add(-1)
	return count.Add(1) <= slots
}

func (t *gcras) denied(k int, now int64) bool {
	t.now.Store(now)
	return !t.admits(t.dry, t.names.keys[k])
}

// scatter visits n places in an order that the caches cannot foresee.
func scatter(i, n int) int {
	place, _ := bits.Mul64(uint64(i)*0x9E3779B97F4A7C15, uint64(n))
	return int(place)
}

// drive runs n operations from the i-th on.
func drive(tb testing.TB, l limiter, denial bool, keys, from, n int) {
	for i := from; i < from+n; i++ {
		k := scatter(i, keys)
		if denial {
			if !l.denied(k, int64(i)) {
				tb.Fatal("admitted")
			}
		} else if !l.call(k, int64(i)*10) {
			tb.Fatal("refused")
		}
	}
}

// warm makes every entry, and drains those that are to be denied.
func warm(l limiter, keys int) {
	for k := range keys {
		l.call(k, 0)
		l.denied(k, 0)
	}
}

func BenchmarkLimiter(b *testing.B) {
	for _, path := range []string{"admit", "deny"} {
		for _, keys := range []int{1, 10_000, 1_000_000} {
			for _, c := range contenders {
				b.Run(fmt.Sprintf("%s/keys=%d/%s", path, keys, c.name), func(b *testing.B) {
					l := c.make(keys)
					warm(l, keys)
					b.ReportAllocs()
					b.ResetTimer()
					took := cpuTime(b, func() { drive(b, l, path == "deny", keys, 0, b.N) })
					b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}

var (
	table = flag.Bool("table", false, "measure and print the table of limiters")
	most  = flag.Int("most", 1_000_000, "the largest number of keys in the table")
)

// TestTable prints processor time per operation, medians of runs in turn, so that
// a busy moment of the machine meets all contenders, and the ratios to ours.
func TestTable(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	const rounds, n = 9, 100_000
	fmt.Println("| path | keys | contender | ns/op | times ours |\n|---|---|---|---|---|")
	for _, path := range []string{"admit", "deny"} {
		for _, keys := range []int{1, 10_000, *most} {
			limiters := make([]limiter, len(contenders))
			runs := make([][]float64, len(contenders))
			for i, c := range contenders {
				limiters[i] = c.make(keys)
				warm(limiters[i], keys)
			}
			for r := range rounds {
				for i, l := range limiters {
					took := cpuTime(t, func() { drive(t, l, path == "deny", keys, r*n, n) })
					runs[i] = append(runs[i], float64(took.Nanoseconds())/n)
				}
			}
			for i, c := range contenders {
				slices.Sort(runs[i])
				slices.Sort(runs[0])
				fmt.Printf("| %s | %d | %s | %.0f | %.1f |\n", path, keys, c.name, runs[i][rounds/2], runs[i][rounds/2]/runs[0][rounds/2])
			}
		}
	}
}
