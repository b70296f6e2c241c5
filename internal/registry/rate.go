package registry

import (
	"agentgw/internal/literal"

	"gopkg.in/yaml.v3"
)

// rate reads the rps and burst of an object; nil where it has neither, which
// required makes a mistake. A block that means to limit and does not say by
// how much must not pass for a limit.
func (r *reader) rate(o *object, required bool) *Rate {
	rps, hasRPS := o.get("rps")
	burst, hasBurst := o.get("burst")
	switch {
	case !hasRPS && hasBurst:
		r.fail(burst.key, o.path, "a burst without its rate limits nothing: rps is missing")
		return nil
	case !hasRPS:
		if required && o.node.Kind == yaml.MappingNode {
			r.fail(o.node, o.path, "rps is missing; a limit without a rate limits nothing")
		}
		return nil
	}
	found := len(r.problems)
	rate := &Rate{RPS: r.decimal(rps), Pos: r.pos(rps.key), BurstPos: r.pos(rps.key)}
	if hasBurst {
		rate.Burst, rate.BurstPos = r.whole(burst), r.pos(burst.key)
	} else if rate.RPS > 0 && rate.RPS <= literal.MaxRPS {
		rate.Burst, rate.BurstDefaulted = literal.DefaultBurst(rate.RPS), true
	}
	if len(r.problems) > found {
		return nil
	}
	if err := literal.CheckRate(rate.RPS, rate.Burst); err != nil {
		at := rps
		if hasBurst {
			at = burst
		}
		r.fail(at.value, at.path, "%v", err)
		return nil
	}
	return rate
}
