package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentgw/internal/admin"
	"agentgw/internal/gateway"
	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/ratelimit"
)

// What operators may see of tenants and do to them, for package admin.

func (o operations) Tenants() []admin.Tenant {
	now, inForce := o.nanos.Nanos(), o.gateway.Tenants()
	var list []admin.Tenant
	each := func(e ratelimit.Entry) bool {
		// What the entry remembers are the limits of its last call.
		ref := inForce[e.Partition]
		switch {
		case e.Overflow:
			t := o.tenant(e, now)
			t.ID = overflowID(e.Limit)
			list = append(list, t)
		case ref != nil:
			list = append(list, o.tenant(o.limiter.Look(ref, now), now))
		default: // its keys are gone
			list = append(list, o.tenant(e, now))
		}
		return true
	}
	o.limiter.Each(ratelimit.Registered, ratelimit.KindTenant, now, each)
	o.limiter.Each(ratelimit.Callers, ratelimit.KindTenant, now, each)
	for _, id := range append(o.limiter.BlockedTenants(ratelimit.Registered), o.limiter.BlockedTenants(ratelimit.Callers)...) {
		if !slices.ContainsFunc(list, func(t admin.Tenant) bool { return t.ID == id }) {
			list = append(list, o.idle(id, inForce[id], now))
		}
	}
	slices.SortFunc(list, func(a, b admin.Tenant) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (o operations) Tenant(id string) (admin.Tenant, error) {
	now, inForce := o.nanos.Nanos(), o.gateway.Tenants()
	if ref := inForce[id]; ref != nil {
		t := o.idle(id, ref, now)
		for _, k := range o.gateway.KeysOf(id) {
			key := admin.TenantKey{ID: k.ID, Bucket: bucketOf(o.limiter.Look(k.Key, now))}
			for _, s := range k.Services {
				key.Services = append(key.Services, admin.ServiceBucket{Service: s.Name, Bucket: bucketOf(o.limiter.Look(s.Bucket, now))})
			}
			t.Keys = append(t.Keys, key)
		}
		return t, nil
	}
	for _, t := range o.Tenants() {
		if t.ID == id {
			return t, nil
		}
	}
	names := slices.Sorted(maps.Keys(inForce))
	near := literal.Nearest(id, names)
	if named := identity.NewTenant(identity.KindTenant, id).String(); inForce[named] != nil {
		near = named
	}
	return admin.Tenant{}, noSuchTenantError{id, near, ""}
}

// noSuchTenantError is an admin.ErrNoSuchTenant with what may have been meant, and
// what was not done therefore.
type noSuchTenantError struct{ id, near, undone string }

var kindOfTenant = regexp.MustCompile(`^(?:tenant|key|human|oidc):.`)

// isTenantName reports whether a text could be the name of a tenant, as no key is:
// what is none is never repeated.
func isTenantName(id string) bool {
	return kindOfTenant.MatchString(id) && !strings.Contains(id, "agw_")
}

func (e noSuchTenantError) Error() string {
	text := fmt.Sprintf("there is no tenant %q: no key is charged to it, and it has not called lately", e.id)
	if !isTenantName(e.id) {
		text = "that is not the full name of a tenant, such as tenant:acme, key:ci-bot or human:user-42"
	}
	text += e.undone
	if e.near != "" {
		text += "; did you mean " + e.near + "?"
	}
	return text
}

func (noSuchTenantError) Is(target error) bool { return target == admin.ErrNoSuchTenant }

// idle is a tenant by its name: of limits that are in force, or, where ref is nil,
// none that anybody knows of.
func (o operations) idle(id string, ref *ratelimit.Ref, now int64) admin.Tenant {
	if ref == nil {
		return admin.Tenant{ID: id, Blocked: o.limiter.Blocked(gateway.TableOf(id), id)}
	}
	return o.tenant(o.limiter.Look(ref, now), now)
}

// queue is how many calls of a tenant may wait.
func (o operations) queue() int {
	if now := o.live.rules().settings; now.TenantQueueWait > 0 {
		return now.TenantQueue
	}
	return 0
}

// overflowID names an entry that many share, of which there is one for each limit:
// by how often a token comes, and the burst. No tenant's name begins like that.
func overflowID(l ratelimit.Limit) string {
	return fmt.Sprintf("overflow:%s:%d", time.Duration(l.Interval), l.Burst)
}

// tenant puts an entry into operators' words.
func (o operations) tenant(e ratelimit.Entry, now int64) admin.Tenant {
	t := admin.Tenant{
		ID: e.Partition, InFlight: e.InFlight, Queued: e.Waiting, Queue: o.queue(), Cap: e.Cap, Bucket: bucketOf(e), Blocked: e.Blocked, Overflow: e.Overflow,
	}
	if r := e.LastRefusal; r.Code != "" {
		// By its age, since clocks are set meanwhile; and the two are not read at once.
		at := o.clock.Now().Add(time.Duration(r.At - now)).Round(time.Millisecond)
		t.LastRefusal = admin.LastRefusal{At: at, Code: r.Code, Limit: r.Limit, Tenant: r.Partition}
	}
	return t
}

func bucketOf(e ratelimit.Entry) admin.Bucket {
	if e.Limit.Unlimited() {
		return admin.Bucket{}
	}
	return admin.Bucket{RPS: perSecond(e.Limit), Burst: e.Limit.Burst, Remaining: e.Remaining}
}

// perSecond is a limit's rate, to a thousandth: what was asked for was rounded
// to whole nanoseconds a token.
func perSecond(l ratelimit.Limit) float64 { return math.Round(1e12/float64(l.Interval)) / 1e3 }

// Block has the limiter refuse first, so that no call can be admitted after the
// running ones were ended. A name that nobody knows is more likely misspelt than
// meant, and whoever blocks is in a hurry: it must be said, and nothing done,
// unless it is asked for.
func (o operations) Block(id string, ahead bool) (known bool, ended int, err error) {
	known, err = o.known(id, "; nobody was blocked (?ahead=true blocks who is not known yet)")
	if err != nil && !(ahead && isTenantName(id)) {
		return false, 0, err
	}
	o.limiter.Block(gateway.TableOf(id), id)
	ended = o.gateway.Block(id)
	o.log.Warn("an operator blocked a tenant", "tenant", id, "known", known, "calls_ended", ended)
	return known, ended, nil
}

func (o operations) Unblock(id string) (was bool, err error) {
	if _, err := o.known(id, "; nobody was unblocked"); err != nil {
		return false, err
	}
	was = o.limiter.Blocked(gateway.TableOf(id), id)
	o.gateway.Unblock(id)
	o.limiter.Unblock(gateway.TableOf(id), id)
	o.log.Warn("an operator unblocked a tenant", "tenant", id, "was_blocked", was)
	return was, nil
}

func (o operations) known(id, undone string) (bool, error) {
	_, err := o.Tenant(id)
	var no noSuchTenantError
	if errors.As(err, &no) {
		no.undone = undone
		return false, no
	}
	return err == nil, err
}
