package gateway

import (
	"slices"

	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// asks are the rules that somebody is asked about.
type asks uint8

const (
	everyRule   asks = iota
	rulesOfEach      // those that are charged for each call of a batch
	rulesOfAll       // those that are charged for the batch
)

func (a asks) about(r *rules.Rule) bool { return a == everyRule || r.Cost == (a == rulesOfEach) }

// asks is which rules meet the call: of one that the gateway itself took out of a batch
// not those that have met the batch. No header says so.
func (call *Call) asks() asks {
	if call.part == nil {
		return everyRule
	}
	return rulesOfEach
}

// chargeBatch charges a batch for the rules that are charged once for all of its
// calls, and refuses it as a whole. To them it is one request, which each of the
// partition keys of its calls meets once: what counts requests counts one, and what
// counts bytes or a number the sum of its calls', since that is what is asked for; under
// the least that any of them may have. A call that is out of scope meets no limit.
func (g *Gateway) chargeBatch(call *Call, charge ratelimit.Charge, out *answer, at *attempt) *Error {
	b := call.batch
	b.open(call)
	asked := make([][]ratelimit.Use, len(b.parts))
	var merged []ratelimit.Use
	for i, p := range b.parts {
		_, action, err := authorize(p.view.registry, p.Key, p.Act)
		if err != nil {
			continue // it is told so by itself
		}
		asked[i] = g.uses(p, action, p.account.pays(p.Act.Principal), rulesOfAll)
		for _, u := range asked[i] {
			merged = merge(merged, u, call.view.once(u.Rule))
		}
	}
	v := g.limiter.Spend(charge, merged, g.nanos.Nanos())
	call.uses = strictest(merged)
	tell(out, v, call.uses)
	if v.Outcome != ratelimit.Admitted {
		at.record.Tenant = call.account.pays(call.Act.Principal)
		err := g.refusal(call, v)
		g.noteRefusal(call, err)
		return err
	}
	g.showObserved(call)
	for i, p := range b.parts {
		for _, u := range asked[i] {
			p.part.shared = append(p.part.shared, merged[same(merged, u)])
		}
	}
	return nil
}

// once reports whether a batch counts for one of what a rule counts, whatever its
// calls count for.
func (v *view) once(of *ratelimit.Rule) bool {
	return v.rules.Rules()[slices.Index(v.windows, of)].Of == registry.CountRequests
}

// merge has uses hold u too, each partition key of a rule once.
func merge(uses []ratelimit.Use, u ratelimit.Use, once bool) []ratelimit.Use {
	at := same(uses, u)
	if at < 0 {
		return append(uses, u)
	}
	if !once {
		uses[at].Count += u.Count
	}
	uses[at].Max = min(uses[at].Max, u.Max)
	return uses
}

func same(uses []ratelimit.Use, u ratelimit.Use) int {
	return slices.IndexFunc(uses, func(o ratelimit.Use) bool { return o.Rule == u.Rule && o.Partition == u.Partition })
}

// strictest is one of each rule, to be told of: the one that refused, or else has the
// least left. Whose it is would tell nobody more, since a rule has one name.
func strictest(uses []ratelimit.Use) (list []ratelimit.Use) {
	for _, u := range uses {
		at := slices.IndexFunc(list, func(o ratelimit.Use) bool { return o.Rule == u.Rule })
		switch {
		case at < 0:
			list = append(list, u)
		case u.Refused() && !list[at].Refused(), u.Refused() == list[at].Refused() && u.Reading().Remaining < list[at].Reading().Remaining:
			list[at] = u
		}
	}
	return list
}
