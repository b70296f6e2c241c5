package ratelimit

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"testing"
)

// The figures here are of a decision with the request's own timestamp, as the
// gateway makes it. Peers, with the same traffic, are measured in the module
// bench/ at the root, so that they stay out of this one's dependencies.

func benchLimit(perSecond float64, burst int64) Limit {
	l, err := NewLimit(perSecond, burst)
	if err != nil {
		panic(err)
	}
	return l
}

// population is keys of tenants, which have 10 each, as a gateway holds them.
type population struct {
	l       *Local
	keys    []member
	service *Service
}

type member struct{ key, tenant, bucket *Ref }

func populate(n int) *population {
	p := &population{l: NewLocal(Options{TableSize: max(100_000, 4*n)}), service: NewService("search", 0)}
	var tenant *Ref
	for i := range n {
		if i%10 == 0 {
			tenant = NewTenant(Registered, fmt.Sprintf("tenant:%d", i/10), wide, 32)
		}
		key := fmt.Sprintf("key-%d", i)
		p.keys = append(p.keys, member{
			key:    NewRef(Registered, KindKey, key, wide),
			tenant: tenant,
			bucket: NewRef(Registered, KindService, ServiceBucket(key, "search"), wide),
		})
	}
	for k := range p.keys {
		p.call(k, 0)
	}
	return p
}

// call is a whole call by key k: key, tenant and (key, service) tokens, a slot,
// and its release.
func (p *population) call(k int, now int64) Outcome {
	m := &p.keys[k]
	c := p.l.Take(m.key, now)
	t, v := p.l.Admit(c, Admission{Tenant: m.tenant, Bucket: m.bucket, Service: p.service}, now)
	t.Release()
	return v.Outcome
}

// scatter visits n places in an order that the caches cannot foresee.
func scatter(i uint64, n int) int {
	place, _ := bits.Mul64(i*0x9E3779B97F4A7C15, uint64(n))
	return int(place)
}

var (
	sizes = []int{1, 10_000, 1_000_000}
	wide  = benchLimit(1e9, 1<<30)
)

// BenchmarkAdmission is a whole call.
func BenchmarkAdmission(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			p := populate(n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range uint64(b.N) {
				if o := p.call(scatter(i, n), int64(i)*10); o != Admitted {
					b.Fatal(o)
				}
			}
		})
	}
}

// BenchmarkDenial is a flood on a drained key.
func BenchmarkDenial(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			l, slow := NewLocal(Options{TableSize: max(100_000, n)}), benchLimit(0.001, 1)
			var keys []*Ref
			for i := range n {
				keys = append(keys, NewRef(Registered, KindKey, fmt.Sprintf("key-%d", i), slow))
				l.Take(keys[i], 0)
				l.Take(keys[i], 0)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range uint64(b.N) {
				if !l.Take(keys[scatter(i, n)], 1).Refused() {
					b.Fatal("admitted")
				}
			}
		})
	}
}

// BenchmarkAdmissionParallel gives every goroutine its own tenant and key.
func BenchmarkAdmissionParallel(b *testing.B) {
	p := populate(1000)
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		k := int(next.Add(1)*10) % len(p.keys)
		for now := int64(0); pb.Next(); now += 10 {
			p.call(k, now)
		}
	})
}

// BenchmarkInsertPinnedTail is an insert into a full table of which the oldest
// half has calls in flight.
func BenchmarkInsertPinnedTail(b *testing.B) {
	const size = 100_000
	l := NewLocal(Options{TableSize: size})
	limit := benchLimit(1e6, 1)
	for i := range size / 2 {
		l.admit(admission{Tenant: fmt.Sprintf("pinned-%d", i), TenantLimit: limit}, 0)
	}
	for i := range size {
		l.take(Registered, KindKey, fmt.Sprintf("idle-%d", i), limit, int64(i))
	}
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprintf("new-%d", i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		l.take(Registered, KindKey, names[i%len(names)], limit, int64(i)*1000+1<<40)
	}
}
