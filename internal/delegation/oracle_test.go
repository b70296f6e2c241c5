package delegation_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentgw/internal/delegation"
)

// This file judges chains as sets. A link allows a set of calls, out of a small world of
// calls that is written out in full; a link may not allow what none of the details of the
// link before it does; and so on. It knows no rule about constraints but which values
// each allows.

// value is what a parameter may be in that world, as JSON; "" is not there.
type value string

func (v value) isString() bool { return strings.HasPrefix(string(v), `"`) }

// values are all of them: those that constraints name, and of each kind some that none does.
var (
	named  = []value{`"x"`, `"xy"`, `"xyz"`, `"z"`, `"2"`, `1`, `2`, `2.0`, `2.5`, `10`, `true`}
	values = append(slices.Clone(named), ``, `""`, `"q"`, `"xq"`, `"xyq"`, `"true"`, `-5`, `1.5`, `7`, `99`, `false`)
)

// bound is a constraint: its JSON, and which values it allows.
type bound struct {
	json   object
	allows func(v value) bool
}

func raw(v value) any {
	switch {
	case v.isString():
		return string(v[1 : len(v)-1])
	case v == "true", v == "false":
		return v == "true"
	}
	return jsonNumber(v)
}

// jsonNumber keeps a number as it is written.
type jsonNumber string

func (n jsonNumber) MarshalJSON() ([]byte, error) { return []byte(n), nil }

func randomBound(r *rand.Rand) bound {
	switch r.IntN(4) {
	case 0:
		v := named[r.IntN(len(named))]
		return bound{object{"const": raw(v)}, func(w value) bool { return w == v }}
	case 1:
		var list []value
		var texts []any
		for range 1 + r.IntN(3) {
			list = append(list, named[r.IntN(len(named))])
			texts = append(texts, raw(list[len(list)-1]))
		}
		return bound{object{"enum": texts}, func(w value) bool { return slices.Contains(list, w) }}
	case 2:
		p := []string{"", "x", "xy"}[r.IntN(3)]
		return bound{object{"prefix": p}, func(w value) bool { return w.isString() && strings.HasPrefix(string(w[1:]), p) }}
	}
	m := []value{"1", "2", "2.5", "10"}[r.IntN(4)]
	most, _ := strconv.ParseFloat(string(m), 64)
	return bound{object{"max": jsonNumber(m)}, func(w value) bool {
		n, err := strconv.ParseFloat(string(w), 64)
		return err == nil && n <= most
	}}
}

var worldServices, worldActions = []string{"s", "t"}, []string{"a", "b", "c"}

// calls is a set of calls of the world.
type calls [2][3][22][22]bool

// detail is one that was made at random: its parts, and the set that it allows.
type detail struct {
	service int
	actions []int
	bounds  map[string]bound
	set     *calls
}

func (d *detail) settle() {
	d.set = new(calls)
	for _, a := range d.actions {
		for p, vp := range values {
			for q, vq := range values {
				ok := true
				for name, v := range map[string]value{"p": vp, "q": vq} {
					if b, bounded := d.bounds[name]; bounded && (v == "" || !b.allows(v)) {
						ok = false
					}
				}
				d.set[d.service][a][p][q] = ok
			}
		}
	}
}

func (d *detail) json() any {
	var actions []string
	for _, a := range d.actions {
		actions = append(actions, worldActions[a])
	}
	constraints := object{}
	for name, b := range d.bounds {
		constraints[name] = b.json
	}
	return grant(worldServices[d.service], actions, constraints)
}

func (a *calls) within(b *calls) bool {
	for s := range a {
		for n := range a[s] {
			for p := range a[s][n] {
				for q := range a[s][n][p] {
					if a[s][n][p][q] && !b[s][n][p][q] {
						return false
					}
				}
			}
		}
	}
	return true
}

func randomDetail(r *rand.Rand) *detail {
	d := &detail{service: r.IntN(2), bounds: map[string]bound{}}
	for len(d.actions) == 0 {
		for a := range worldActions {
			if r.IntN(2) == 0 {
				d.actions = append(d.actions, a)
			}
		}
	}
	for _, name := range []string{"p", "q"} {
		if r.IntN(3) == 0 {
			d.bounds[name] = randomBound(r)
		}
	}
	d.settle()
	return d
}

// changed is like p with something else about it, as a rule less.
func (p *detail) changed(r *rand.Rand) *detail {
	d := &detail{service: p.service, actions: slices.Clone(p.actions), bounds: map[string]bound{}}
	for name, b := range p.bounds {
		d.bounds[name] = b
	}
	switch r.IntN(9) {
	case 0:
		d.actions = d.actions[:1]
	case 1, 2, 3:
		d.bounds[[]string{"p", "q"}[r.IntN(2)]] = randomBound(r)
	case 4:
		if r.IntN(4) == 0 {
			return randomDetail(r)
		}
	case 5:
		if r.IntN(4) == 0 {
			delete(d.bounds, "p")
		}
	}
	d.settle()
	return d
}

// modelLink is what a link says besides its details.
type modelLink struct {
	user, tenant, agent, id string
	from, until             int64
	depth                   int
	details                 []*detail
	broken                  bool // something about its signature is wrong
}

// naive judges a chain as the sets have it.
func naive(chain []modelLink, issued, now int64, a modelLink, service, action, p, q int, revoked map[string]bool) bool {
	for i, l := range chain {
		if l.broken || now >= l.until || now+60 < max(l.from, issued) || revoked[l.id] {
			return false
		}
		if i == 0 {
			continue
		}
		parent := chain[i-1]
		if l.user != parent.user || l.tenant != parent.tenant || l.until > parent.until || l.from < parent.from || l.depth >= parent.depth {
			return false
		}
		for _, d := range l.details {
			if !slices.ContainsFunc(parent.details, func(p *detail) bool { return d.set.within(p.set) }) {
				return false
			}
		}
	}
	leaf := chain[len(chain)-1]
	return leaf.agent == a.agent && leaf.user == a.user && leaf.tenant == a.tenant &&
		slices.ContainsFunc(leaf.details, func(d *detail) bool { return d.set[service][action][p][q] })
}

// TestRandomChainsAgreeWithSets: whatever a chain is made of, it holds exactly if the
// sets say so; and what one that holds allows, each link before it allows too.
func TestRandomChainsAgreeWithSets(t *testing.T) {
	n := 1500
	if os.Getenv("DRILLS") == "full" {
		n = 100_000
	}
	held, refused := 0, map[delegation.Reason]int{}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		odd := func() bool { return r.IntN(40) == 0 }
		model := make([]modelLink, 1+r.IntN(4))
		start := noon.Unix()
		for i := range model {
			l := &model[i]
			if i == 0 {
				*l = modelLink{user: "alice", tenant: "acme", from: start, until: start + 3600, depth: len(model) - 1 + r.IntN(5-len(model))}
				for range 1 + r.IntN(3) {
					l.details = append(l.details, randomDetail(r))
				}
			} else {
				*l = model[i-1]
				l.details = nil
				for range 1 + r.IntN(2) {
					l.details = append(l.details, model[i-1].details[r.IntN(len(model[i-1].details))].changed(r))
				}
				l.depth--
				l.until -= int64(r.IntN(3)) * 600
				l.from += int64(r.IntN(3)) * 30
			}
			l.agent, l.id, l.broken = fmt.Sprint("agent", i), fmt.Sprint("id", i), odd()
			if odd() {
				l.user = "bob"
			}
			if odd() {
				l.tenant = "other"
			}
			if odd() {
				l.until += 601
			}
			if odd() {
				l.from -= 31
			}
			if odd() {
				l.depth = min(3, l.depth+1)
			}
			l.depth = max(0, l.depth)
		}
		chain := chainOf(len(model), func(l *link) {
			m := model[l.i]
			var details []any
			for _, d := range m.details {
				details = append(details, d.json())
			}
			l.claims["sub"], l.claims["tenant"], l.claims["act"] = "user:"+m.user, m.tenant, object{"sub": "agent:" + m.agent}
			l.claims["authorization_details"], l.claims["del_depth"], l.claims["jti"] = details, m.depth, m.id
			l.claims["iat"], l.claims["nbf"], l.claims["exp"] = start, m.from, m.until
			if !m.broken {
				return
			}
			switch r.IntN(3) {
			case 0:
				l.key = strangerKey
			case 1:
				l.claims["par"] = hashOf("another")
			case 2:
				l.claims["iss"] = "https://other.example"
			}
		})
		now := start + int64(r.IntN(8))*600 - 90
		ask := modelLink{agent: model[len(model)-1].agent, user: "alice", tenant: "acme"}
		if odd() {
			ask.agent = "agent0"
		}
		if odd() {
			ask.user = "bob"
		}
		if odd() {
			ask.tenant = "other"
		}
		revoked := map[string]bool{fmt.Sprint("id", r.IntN(60)): true}
		service, action, p, q := r.IntN(2), r.IntN(3), r.IntN(len(values)), r.IntN(len(values))
		for range 20 { // rather one that it allows
			if d := model[len(model)-1].details[0]; d.set[service][action][p][q] || r.IntN(8) == 0 {
				break
			}
			service, action, p, q = r.IntN(2), r.IntN(3), r.IntN(len(values)), r.IntN(len(values))
		}
		var params []string
		for name, v := range map[string]value{"p": values[p], "q": values[q]} {
			if v != "" {
				params = append(params, strconv.Quote(name)+":"+string(v))
			}
		}
		want := naive(model, start, now, ask, service, action, p, q, revoked)
		v := delegation.Verify(field(chain), &delegation.Trust{Roots: trust.Roots, Revoked: delegation.Revocations{IDs: revoked}}, gatewayURI, time.Unix(now, 0),
			delegation.Ask{Agent: ask.agent, User: ask.user, Tenant: ask.tenant, Service: worldServices[service], Action: worldActions[action], Params: []byte("{" + strings.Join(params, ",") + "}")})
		if v.Holds != want {
			t.Fatalf("seed %d: holds %v, the sets say %v: %s %s\n%+v", seed, v.Holds, want, v.Reason, v.Detail, model)
		}
		if !v.Holds {
			refused[v.Reason]++
			continue
		}
		held++
		for i := range model[:len(model)-1] {
			if !slices.ContainsFunc(model[i].details, func(d *detail) bool { return d.set[service][action][p][q] }) {
				t.Fatalf("seed %d: the call is more than link %d allows", seed, i+1)
			}
		}
	}
	t.Logf("%d of %d hold; the others: %v", held, n, refused)
	if held < n/10 || len(refused) < 10 {
		t.Errorf("%d of %d hold, of %v: the chains are not as mixed as they should be", held, n, refused)
	}
}
