package limitertest

import (
	"testing"

	"pgregory.net/rapid"

	"agentgw/internal/ratelimit"
)

// account names one limit's state.
type account struct {
	kind ratelimit.Kind
	name string
}

// accounts are the naive account of a whole limiter: lists of admissions and
// counts of calls.
type accounts struct {
	buckets map[account]*history
	inUse   map[account]int64
}

func (a *accounts) bucket(kind ratelimit.Kind, name string, l ratelimit.Limit) *history {
	h := a.buckets[account{kind, name}]
	if h == nil {
		h = &history{limit: l}
		a.buckets[account{kind, name}] = h
	}
	return h
}

func (a *accounts) full(kind ratelimit.Kind, name string, most int64) bool {
	return most > 0 && a.inUse[account{kind, name}] >= most
}

// enter counts a call that begins (1) or ends (-1).
func (a *accounts) enter(tenant, service string, n int64) {
	a.inUse[account{ratelimit.KindTenantSlots, tenant}] += n
	a.inUse[account{ratelimit.KindServiceSlots, service}] += n
	a.inUse[account{ratelimit.KindProcessSlots, ""}] += n
}

// againstNaiveAccounts drives whole calls of several keys, tenants and services,
// and their releases, in time that advances, and compares every verdict.
func againstNaiveAccounts(t *testing.T, make Maker) {
	long(t)
	rapid.Check(t, func(t *rapid.T) {
		slots := func(label string) int64 { return rapid.Int64Range(0, 3).Draw(t, label) }
		process := slots("process cap")
		s := make(t).under(process)
		names := []string{"a", "b"}
		keyLimit, tenantLimit, serviceLimit := drawLimit(t), drawLimit(t), drawLimit(t)
		tenantCap, serviceCap := slots("tenant cap"), slots("service cap")
		// Refused ten times as often as admitted, for want of a slot, is free.
		freeLimit := ratelimit.Limit{Interval: keyLimit.Interval / 10, Burst: keyLimit.Burst * 10}
		book := accounts{map[account]*history{}, map[account]int64{}}
		type running struct {
			ticket          ratelimit.Ticket
			tenant, service string
		}
		var open []running
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			advance(t, s, 8)
			now := s.Now()
			if len(open) > 0 && rapid.IntRange(0, 3).Draw(t, "op") == 0 {
				open[0].ticket.Release()
				book.enter(open[0].tenant, open[0].service, -1)
				open = open[1:]
				continue
			}
			pick := func(label string) string { return rapid.SampledFrom(names).Draw(t, label) }
			k, tn, sv := pick("key"), pick("tenant"), pick("service")
			forKey, forTenant := book.bucket(ratelimit.KindKey, k, keyLimit), book.bucket(ratelimit.KindTenant, tn, tenantLimit)
			forService := book.bucket(ratelimit.KindService, ratelimit.ServiceBucket(k, sv), serviceLimit)
			forFree := book.bucket(ratelimit.KindAddress, k, freeLimit)
			tenantFull := book.full(ratelimit.KindTenantSlots, tn, tenantCap)
			serviceFull := book.full(ratelimit.KindServiceSlots, sv, serviceCap)

			want, by := ratelimit.Admitted, ratelimit.Kind(0)
			switch {
			case !forKey.admits(now):
				want, by = ratelimit.RateLimited, ratelimit.KindKey
			case !forTenant.admits(now) || !forService.admits(now):
				want, by = ratelimit.RateLimited, ratelimit.KindTenant
				if forTenant.admits(now) {
					by = ratelimit.KindService
				}
				forKey.add(now)
			case tenantFull || serviceFull || book.full(ratelimit.KindProcessSlots, "", process):
				want, by = ratelimit.ConcurrencyLimited, ratelimit.KindProcessSlots
				if tenantFull {
					by = ratelimit.KindTenantSlots
				} else if serviceFull {
					by = ratelimit.KindServiceSlots
				}
				if forFree.admits(now) {
					forFree.add(now)
				} else {
					want, by = ratelimit.RateLimited, ratelimit.KindKey
					forKey.add(now)
				}
			default:
				forKey.add(now)
				forTenant.add(now)
				forService.add(now)
				book.enter(tn, sv, 1)
			}
			bothDry := by == ratelimit.KindTenant && !forService.admits(now)
			ticket, v := s.call(key(k, keyLimit), ratelimit.Admission{
				Tenant: tenant(tn, tenantLimit, tenantCap), Bucket: bucket(k, sv, serviceLimit), Service: ratelimit.NewService(sv, serviceCap),
			})
			if v.Outcome != want || v.Limit != by && !(bothDry && v.Limit == ratelimit.KindService) {
				t.Fatalf("at %d, %s for %s at %s: %v by %v, want %v by %v", now, k, tn, sv, v.Outcome, v.Limit, want, by)
			}
			switch v.Outcome {
			case ratelimit.Admitted:
				open = append(open, running{ticket, tn, sv})
			case ratelimit.RateLimited:
				// The wait is true of every bucket that the retry needs; the
				// key's own is, when it has run out of free refusals.
				at := now + int64(v.Wait)
				if !forKey.admits(at) || v.Limit != ratelimit.KindKey && !(forTenant.admits(at) && forService.admits(at)) {
					t.Fatalf("at %d: wait %d is too short", now, v.Wait)
				}
				at -= int64(s.step())
				needsFree := v.Limit == ratelimit.KindKey && forKey.admits(at)
				if needsFree && forFree.admits(at) || !needsFree && forKey.admits(at) && forTenant.admits(at) && forService.admits(at) {
					t.Fatalf("at %d: wait %d is too long", now, v.Wait)
				}
			}
		}
		if tenantCap > 0 {
			for _, name := range names {
				if n := tenantCap - s.slotsLeft(tenant(name, tenantLimit, tenantCap)); n != book.inUse[account{ratelimit.KindTenantSlots, name}] {
					t.Fatalf("%s has %d in flight, by the book %d", name, n, book.inUse[account{ratelimit.KindTenantSlots, name}])
				}
			}
		}
	})
}
