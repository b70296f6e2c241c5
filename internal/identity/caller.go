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

// NewOpenCaller returns what stands for a caller of an open service who came without a
// key: by what he is known by in k, and whom an issuer says that he is. What else k may
// do, and who pays for it, does not hold there: he may call all of that service, and
// nothing but it, and has no tenant.
func NewOpenCaller(k Key, service string) *Secret {
	c := &Key{
		ID: k.ID, Issuer: k.Issuer, Audience: k.Audience, Client: k.Client, User: k.User, Space: k.Space, Org: k.Org,
		Open: service, Services: []string{service}, Users: []string{Everything},
	}
	c.prepare()
	return &Secret{Key: c}
}
