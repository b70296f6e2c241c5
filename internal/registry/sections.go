package registry

import (
	"strings"

	"agentgw/internal/literal"

	"gopkg.in/yaml.v3"
)

// snapshot reads the whole file. Sections that name others are read after
// them, whatever the order of the file.
func (r *reader) snapshot(root *yaml.Node) *Snapshot {
	o := r.object(root, "", "version", "server", "tenants", "keys", "issuers",
		"services", "tunnels", "rules", "identity_limits")
	s := &Snapshot{Tenants: map[string]*Tenant{}, Services: map[string]*Service{}}
	if e, ok := o.get("version"); ok {
		if v, ok := r.scalar(e); ok && v != "1" {
			r.fail(e.value, e.path, "%s is not a version that this program knows: write 1", literal.Quote(v))
		}
	}
	if o.lost("server") {
		s.Server = []Setting{{Doubt: true}}
	}
	if e, ok := o.get("server"); ok {
		s.Server = append(s.Server, r.server(e)...)
	}
	// What has a name that is no id is kept all the same: what names it has not
	// made a mistake of its own.
	r.tenantsLost, r.servicesLost = o.lost("tenants"), o.lost("services")
	if e, ok := o.get("tenants"); ok {
		for _, t := range r.entries(e.value, e.path) {
			r.idName(t)
			s.Tenants[t.name] = r.tenant(t)
		}
	}
	if e, ok := o.get("tunnels"); ok {
		s.Tunnels = r.tunnels(e)
	}
	if e, ok := o.get("services"); ok {
		for _, t := range r.entries(e.value, e.path) {
			r.idName(t)
			if t.name == TunnelService && s.Tunnels != nil {
				r.fail(t.key, t.path, "tunnels have this name in the scopes of keys; give the service another, or leave the section tunnels out")
			}
			s.Services[t.name] = r.service(t)
		}
	}
	if e, ok := o.get("keys"); ok {
		s.Keys = r.keys(e, s)
	}
	if e, ok := o.get("issuers"); ok {
		s.Issuers = r.issuers(e, s)
	}
	if e, ok := o.get("identity_limits"); ok {
		s.IdentityLimits = r.identityLimits(e)
	}
	if e, ok := o.get("rules"); ok {
		s.Rules = r.rules(e, s.IdentityLimits)
	}
	return s
}

// server reads the settings as text: config knows their names and forms.
func (r *reader) server(e entry) []Setting {
	var list []Setting
	times := map[string]int{}
	for i := 0; i+1 < len(e.value.Content); i += 2 {
		times[strings.ToLower(e.value.Content[i].Value)]++
	}
	for _, m := range r.entries(e.value, e.path) {
		set := Setting{Name: m.name, Pos: r.pos(m.key)}
		found := len(r.problems)
		if m.value.Kind == yaml.SequenceNode {
			set.Value = strings.Join(r.texts(m), ",")
		} else {
			set.Value = r.text(m)
		}
		set.Doubt = set.Value == "" || len(r.problems) > found || times[strings.ToLower(m.name)] > 1
		list = append(list, set)
	}
	return list
}

func (r *reader) tenant(e entry) *Tenant {
	o := r.object(e.value, e.path, "rps", "burst", "max_inflight", "weight")
	t := &Tenant{Name: e.name, Rate: r.rate(o, false), Weight: 1, Pos: r.pos(e.key)}
	if m, ok := o.get("max_inflight"); ok {
		n := r.whole(m)
		t.MaxInflight, t.MaxInflightPos = &n, r.pos(m.key)
	}
	if m, ok := o.get("weight"); ok {
		t.WeightPos = r.pos(m.key)
		if t.Weight = r.whole(m); t.Weight < 1 || t.Weight > 1000 {
			r.fail(m.value, m.path, "a weight is from 1 to 1000")
		}
	}
	return t
}
