package registry

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// issuers reads the OpenID Connect issuers. Tenants and services have been read
// before.
func (r *reader) issuers(e entry, s *Snapshot) []Issuer {
	var list []Issuer
	seen := map[string]entry{}
	for _, item := range r.items(e) {
		o := r.object(item.value, item.path, "issuer", "audience", "azp", "tenant_claim", "user_claim", "space_claim", "org_claim",
			"tenants", "allow_private", "services", "actions", "users", "limits", "scopes")
		i := Issuer{
			Audience:     r.needText(o, "audience"),
			TenantClaim:  r.claim(o, "tenant_claim"),
			UserClaim:    "sub",
			SpaceClaim:   r.claim(o, "space_claim"),
			OrgClaim:     r.claim(o, "org_claim"),
			AllowPrivate: r.optionalBoolean(o, "allow_private"),
			Grant:        r.grant(o, s),
			Pos:          r.pos(item.value),
		}
		if m, ok := o.need("issuer"); ok {
			if i.Issuer = r.text(m); i.Issuer != "" {
				once(r, seen, i.Issuer, m)
				_, err := parseURL(i.Issuer)
				if err == nil && strings.Contains(i.Issuer, "@") {
					err = errUserinfo // with a slash in the password, perhaps: an issuer is shown as it stands
				}
				if err != nil {
					r.fail(m.value, m.path, "%v", err)
				} else if !i.AllowPrivate && strings.HasPrefix(i.Issuer, "http://") {
					r.fail(m.value, m.path, "whoever is on the way could put his own keys in the place of this issuer's: write https://, or allow_private: true for one on this machine or in a network of your own")
				}
			}
		}
		if m, ok := o.get("azp"); ok {
			i.AZP = r.texts(m)
			if m.value.Kind == yaml.SequenceNode && len(m.value.Content) == 0 {
				r.fail(m.value, m.path, "is empty: leave it out to take tokens of every client")
			}
		}
		if _, ok := o.get("user_claim"); ok {
			i.UserClaim = r.claim(o, "user_claim")
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
			if _, has := o.get("tenant_claim"); !has {
				r.fail(m.key, m.path, "says nothing without tenant_claim, whose values it maps")
			}
		}
		if m, ok := o.get("scopes"); ok {
			i.Scopes = r.scopes(m, s)
		}
		list = append(list, i)
	}
	return list
}

// scopes reads what holders of certain claims may do.
func (r *reader) scopes(e entry, s *Snapshot) []Scope {
	var list []Scope
	for _, item := range r.items(e) {
		o := r.object(item.value, item.path, "claim", "value", "when", "services", "actions", "users", "limits")
		scope := Scope{Grant: r.grant(o, s)}
		if m, ok := o.get("when"); ok {
			scope.When, scope.WhenPos = r.text(m), r.pos(m.value)
			for _, name := range []string{"claim", "value"} {
				if m, ok := o.get(name); ok {
					r.fail(m.key, m.path, "says the same as when in another way: there is one of the two")
				}
			}
		} else {
			o.need("claim")
			scope.Claim, scope.Value = r.claim(o, "claim"), r.needText(o, "value")
		}
		o.need("services")
		scope.Pos = r.pos(item.value)
		list = append(list, scope)
	}
	return list
}

// grant reads what callers may do. Without services that is nothing, and then
// nothing else may be said either: it would read as if it gave something.
func (r *reader) grant(o *object, s *Snapshot) Grant {
	g := Grant{Pos: r.pos(o.node)}
	m, has := o.get("services")
	if has {
		g.Services = r.keyServices(m, s)
	}
	for _, name := range []string{"actions", "users", "limits"} {
		if m, ok := o.get(name); ok && !has && !o.misnamed("services") {
			r.fail(m.key, m.path, "gives nothing without services beside it")
		}
	}
	if m, ok := o.get("actions"); ok {
		g.Actions = r.keyActions(m, s)
	}
	if m, ok := o.get("users"); ok {
		g.Users = r.starOrNames(m)
	}
	if m, ok := o.get("limits"); ok {
		g.Rate = r.rate(r.object(m.value, m.path, "rps", "burst"), true)
	}
	return g
}

// claim reads the name of a claim, or a pointer into the claims.
func (r *reader) claim(o *object, name string) string {
	text := r.optionalText(o, name)
	m, _ := o.get(name)
	if strings.HasPrefix(text, "/") && badEscape(text) {
		r.fail(m.value, m.path, "is no JSON Pointer: ~ is written ~0 in one, and / in a name ~1")
	}
	return text
}

// badEscape reports whether a tilde in a JSON Pointer begins neither ~0 nor ~1.
func badEscape(pointer string) bool {
	return strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(pointer), "~")
}
