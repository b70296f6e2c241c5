package ratelimit

import (
	"testing"

	"pgregory.net/rapid"
)

// TestAgainstNaiveAccounts drives whole calls of several keys, tenants and
// services, and their releases, in time that advances, and compares every verdict
// with accounts that know only lists of admissions and counts of calls.
func TestAgainstNaiveAccounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := func(label string) int64 { return rapid.Int64Range(0, 3).Draw(t, label) }
		process := slots("process cap")
		l := NewLocal(Options{MaxInFlight: process})
		names := []string{"a", "b"}
		keyLimit, tenantLimit, serviceLimit := drawLimit(t), drawLimit(t), drawLimit(t)
		tenantCap, serviceCap := slots("tenant cap"), slots("service cap")
		accounts := map[id]*history{}
		account := func(kind Kind, name string, limit Limit) *history {
			h := accounts[id{kind, name}]
			if h == nil {
				h = &history{limit: limit}
				accounts[id{kind, name}] = h
			}
			return h
		}
		inUse := map[id]int64{}
		full := func(kind Kind, name string, most int64) bool { return most > 0 && inUse[id{kind, name}] >= most }
		type running struct {
			ticket          Ticket
			tenant, service string
		}
		var open []running
		now := int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += rapid.Int64Range(0, 8).Draw(t, "dt")
			if len(open) > 0 && rapid.IntRange(0, 3).Draw(t, "op") == 0 {
				r := open[0]
				open = open[1:]
				r.ticket.Release()
				inUse[id{KindTenant, r.tenant}]--
				inUse[id{KindService, r.service}]--
				inUse[id{KindProcessSlots, ""}]--
				continue
			}
			pick := func(label string) string { return rapid.SampledFrom(names).Draw(t, label) }
			key, tenant, service := pick("key"), pick("tenant"), pick("service")
			bucket := ServiceBucket(key, service)
			forKey, forTenant, forService := account(KindKey, key, keyLimit), account(KindTenant, tenant, tenantLimit), account(KindService, bucket, serviceLimit)
			forFree := account(KindAddress, key, keyLimit.times(freeRefusals))

			want, by := Admitted, Kind(0)
			charge, v := l.take(Registered, KindKey, key, keyLimit, now)
			switch {
			case !forKey.admits(now):
				want, by = RateLimited, KindKey
			case !forTenant.admits(now) || !forService.admits(now):
				want, by = RateLimited, KindTenant
				if forTenant.admits(now) {
					by = KindService
				}
				forKey.add(now)
			case full(KindTenant, tenant, tenantCap) || full(KindService, service, serviceCap) || full(KindProcessSlots, "", process):
				want, by = ConcurrencyLimited, KindProcessSlots
				if full(KindTenant, tenant, tenantCap) {
					by = KindTenantSlots
				} else if full(KindService, service, serviceCap) {
					by = KindServiceSlots
				}
				if forFree.admits(now) {
					forFree.add(now)
				} else {
					want, by = RateLimited, KindKey
					forKey.add(now)
				}
			default:
				forKey.add(now)
				forTenant.add(now)
				forService.add(now)
				inUse[id{KindTenant, tenant}]++
				inUse[id{KindService, service}]++
				inUse[id{KindProcessSlots, ""}]++
			}
			bothDry := by == KindTenant && !forService.admits(now)
			var ticket Ticket
			if v.Outcome == Admitted {
				ticket, v = l.admit(admission{
					Charge: charge, Tenant: tenant, TenantLimit: tenantLimit, TenantSlots: tenantCap,
					Service: service, ServiceBucket: bucket, ServiceLimit: serviceLimit, ServiceSlots: serviceCap,
				}, now)
			}
			if v.Outcome != want || v.Limit != by && !(bothDry && v.Limit == KindService) {
				t.Fatalf("at %d, %s for %s at %s: %v by %v, want %v by %v", now, key, tenant, service, v.Outcome, v.Limit, want, by)
			}
			switch v.Outcome {
			case Admitted:
				open = append(open, running{ticket, tenant, service})
			case RateLimited:
				// The wait is true of every bucket that the retry needs; the
				// key's own is, when it has run out of free refusals.
				at := now + int64(v.Wait)
				if !forKey.admits(at) || v.Limit != KindKey && !(forTenant.admits(at) && forService.admits(at)) {
					t.Fatalf("at %d: wait %d is too short", now, v.Wait)
				}
				at--
				needsFree := v.Limit == KindKey && forKey.admits(at)
				if needsFree && forFree.admits(at) || !needsFree && forKey.admits(at) && forTenant.admits(at) && forService.admits(at) {
					t.Fatalf("at %d: wait %d is too long", now, v.Wait)
				}
			}
		}
		st := l.Stats()
		if st.Process.InFlight != int64(len(open)) || st.Tables[Registered].Pinned > int64(len(open)) {
			t.Fatalf("%d open, %+v", len(open), st)
		}
	})
}
