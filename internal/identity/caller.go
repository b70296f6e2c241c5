package identity

import "strings"

// CallerID is what an OpenID Connect caller is known by. A URL of an issuer has no
// fragment, so no two pairs share one; and no key's id has a colon.
func CallerID(issuer, subject string) string { return KindOIDC + ":" + issuer + "#" + subject }

// ParseCallerID takes a CallerID apart; ok is false of what is none.
func ParseCallerID(id string) (issuer, subject string, ok bool) {
	rest, is := strings.CutPrefix(id, KindOIDC+":")
	issuer, subject, has := strings.Cut(rest, "#")
	return issuer, subject, is && has && issuer != "" && subject != ""
}

// NewCaller returns what stands for a token of k.Issuer that came instead of a key. Its
// calls are charged to the named tenant k.Tenant, or else to the issuer's tenant of
// that name, on whoever's behalf they are.
func NewCaller(k Key, tenant string) *Secret {
	c := k.clone()
	c.prepare()
	if c.Tenant == "" {
		c.fixed = NewTenant(KindOIDC, c.Issuer+"#"+tenant)
	}
	return &Secret{Key: c}
}
