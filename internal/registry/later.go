package registry

import (
	"fmt"
	"strings"
	"time"

	"agentgw/internal/literal"
)

// issuers reads the OpenID Connect issuers.
func (r *reader) issuers(e entry, s *Snapshot) []Issuer {
	var list []Issuer
	seen := map[string]entry{}
	for _, item := range r.items(e) {
		o := r.object(item.value, item.path, "issuer", "audience", "tenant_claim", "user_claim",
			"space_claim", "org_claim", "tenants")
		i := Issuer{
			Audience:    r.needText(o, "audience"),
			TenantClaim: r.optionalText(o, "tenant_claim"),
			UserClaim:   "sub",
			SpaceClaim:  r.optionalText(o, "space_claim"),
			OrgClaim:    r.optionalText(o, "org_claim"),
			Pos:         r.pos(item.value),
		}
		if m, ok := o.need("issuer"); ok {
			if i.Issuer = r.text(m); i.Issuer != "" {
				once(r, seen, i.Issuer, m)
				if _, err := parseURL(i.Issuer); err != nil {
					r.fail(m.value, m.path, "%v", err)
				}
			}
		}
		if m, ok := o.get("user_claim"); ok {
			i.UserClaim = r.text(m)
		}
		if m, ok := o.get("tenants"); ok {
			i.Tenants = map[string]string{}
			for _, t := range r.entries(m.value, m.path) {
				name := r.id(t)
				if name != "" && s.Tenants[name] == nil && !r.tenantsLost {
					r.fail(t.value, t.path, "there is no tenant %s%s", name, didYouMean(name, s.Tenants))
				}
				i.Tenants[t.name] = name
			}
		}
		list = append(list, i)
	}
	return list
}

// tunnels reads which hosts CONNECT may reach.
func (r *reader) tunnels(e entry) *Tunnels {
	o := r.object(e.value, e.path, "allow", "bytes_per_window", "window", "on_exhausted", "allow_private")
	t := &Tunnels{
		Window:       time.Hour,
		OnExhausted:  r.choice(o, "on_exhausted", "finish", "cut"),
		AllowPrivate: r.optionalBoolean(o, "allow_private"),
		Pos:          r.pos(e.key),
	}
	if m, ok := o.get("allow"); ok {
		for _, w := range r.words(m) {
			host, port, _ := literal.SplitHostPort(w.text)
			if err := literal.Host(strings.TrimPrefix(host, "*.")); err != nil {
				r.fail(w.value, w.path, "%v", err)
			} else if _, err := literal.Port(port); err != nil {
				r.fail(w.value, w.path, "%v; write HOST:PORT", err)
			}
			t.Allow = append(t.Allow, w.text)
		}
	}
	if m, ok := o.get("bytes_per_window"); ok {
		t.BytesPerWindow = r.size(m)
	}
	if m, ok := o.get("window"); ok {
		if t.Window = r.duration(m); t.Window == 0 {
			r.fail(m.value, m.path, "a window must be longer than 0")
		}
	}
	return t
}

// Unserved lists the sections of the file that are checked but not acted upon
// by this version, so that nobody takes a limit for granted that is none.
func (s *Snapshot) Unserved() Problems {
	var list Problems
	add := func(p Position, path, what string) {
		list = append(list, NewProblem(p, path, what))
	}
	for i, issuer := range s.Issuers {
		add(issuer.Pos, fmt.Sprintf("issuers[%d]", i), "this version takes no OpenID Connect tokens")
	}
	if s.Tunnels != nil && len(s.Tunnels.Allow) > 0 {
		add(s.Tunnels.Pos, "tunnels", "this version opens no tunnels")
	}
	for _, name := range sortedNames(s.Services) {
		service := s.Services[name]
		switch {
		case service.Access == AccessOpen:
			add(service.Pos, "services."+name+".access", "this version has no open services: callers want a key of the gateway, and a credential of theirs is not passed on")
		case service.Dialect != DialectNative:
			add(service.Pos, "services."+name+".dialect", "this version refuses in the native shape alone")
		}
		if service.Passthrough {
			add(service.Pos, "services."+name+".passthrough", "this version has no /proxy: only declared actions can be called")
		}
		if len(service.ChargeMessages) > 0 {
			add(service.Pos, "services."+name+".websocket", "this version relays no WebSocket")
		}
	}
	list.Sort()
	return list
}
