package delegation

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// narrower reports in what a child is more than its parent.
func narrower(parent, child *Claims) *fault {
	widened := func(detail string) *fault { return &fault{reason: Widened, detail: detail} }
	switch {
	case child.User != parent.User:
		return widened("it is for another user than the link before it")
	case child.Tenant != parent.Tenant:
		return widened("it is for another tenant than the link before it")
	case child.Until > parent.Until:
		return widened("it ends later than the link before it")
	case child.From < parent.From:
		return widened("it begins earlier than the link before it")
	case *child.Depth >= *parent.Depth:
		return widened("its del_depth is not below that of the link before it")
	}
	for i := range child.Details {
		if !slices.ContainsFunc(parent.Details, func(p Detail) bool { return child.Details[i].within(&p) }) {
			return widened("it grants what no one detail of the link before it does")
		}
	}
	return nil
}

// within reports whether p grants all that d does.
func (d *Detail) within(p *Detail) bool {
	if d.Service != p.Service {
		return false
	}
	for _, a := range d.Actions {
		if !slices.Contains(p.Actions, a) {
			return false
		}
	}
	for name, bound := range p.Constraints {
		own, ok := d.Constraints[name]
		if !ok || !own.within(bound) {
			return false
		}
	}
	return true
}

// asked reports why a chain that ends with leaf is not for this call.
func asked(leaf *Claims, ask *Ask) *fault {
	switch {
	case leaf.Actor.Agent != agentPrefix+ask.Agent:
		return &fault{reason: WrongAgent, detail: "it is for another agent than the one that calls"}
	case leaf.User != userPrefix+ask.User: // which no link is where it is nobody
		return &fault{reason: WrongUser, detail: "it is of another user than on_behalf_of"}
	case leaf.Tenant != ask.Tenant:
		return &fault{reason: WrongTenant, detail: "it is of another tenant than the caller"}
	}
	named := false
	for i := range leaf.Details {
		d := &leaf.Details[i]
		if d.Service != ask.Service || !slices.Contains(d.Actions, ask.Action) {
			continue
		}
		named = true
		if d.allows(ask.Params) {
			return nil
		}
	}
	if named {
		return &fault{reason: Constrained, detail: "the parameters do not keep to its constraints"}
	}
	return &fault{reason: NotGranted, detail: "it does not grant this action"}
}

// allows reports whether the parameters keep to every constraint. One that a
// constraint names and that is not there does not: what the service takes in its
// place nobody here knows.
func (d *Detail) allows(params []byte) bool {
	if len(d.Constraints) == 0 {
		return true
	}
	kept := 0
	dec := jsontext.NewDecoder(strings.NewReader(string(params)))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return false
		}
		bound, bounded := d.Constraints[name.String()]
		raw, err := dec.ReadValue()
		if err != nil {
			return false
		}
		if !bounded {
			continue
		}
		if v, ok := scalarOf(raw); !ok || !bound.holds(v) {
			return false
		}
		kept++
	}
	// An object that does not end is none; of one with a name twice, which the
	// decoder refuses, nobody would know which is sent.
	_, err := dec.ReadToken()
	return err == nil && kept == len(d.Constraints)
}
