package identity

// Kinds of tenants.
const (
	KindTenant = "tenant" // a named tenant of the registry
	KindKey    = "key"    // a key that acts for anybody, or the overflow of a key
	KindHuman  = "human"  // a human on whose behalf listed keys act
	KindOIDC   = "oidc"   // whom an issuer of tokens names: an organisation, or a caller
)

// overflowSuffix cannot occur in a key's id, which has no colon, so the
// overflow of one key is never another key's own tenant.
const overflowSuffix = ":overflow"

// Tenant is whom the tenant limits of a call are charged to. Tenants are
// comparable; two are the same tenant exactly if they are equal. The zero value
// is nobody.
type Tenant struct {
	Kind, Name string
	text       string
}

// NewTenant returns the tenant of that kind and name.
func NewTenant(kind, name string) Tenant {
	return Tenant{Kind: kind, Name: name, text: kind + ":" + name}
}

// String returns kind:name, as in "human:user-42". No kind holds a colon, so
// two tenants never print alike. It allocates nothing.
func (t Tenant) String() string { return t.text }

// TenantOf returns whom a call on behalf of principal is charged to:
//
//   - a key of a named tenant: that tenant;
//   - a key for every user: the key itself, whatever the caller writes;
//   - a key with listed users: the principal, shared by every key that acts for
//     that human, for the first maxPrincipals of the list. The others share the
//     key's overflow.
//
// So no caller can create tenants, or borrow somebody's budget, by changing the
// principal. A principal that the key may not act for is charged to the
// overflow too; such a call is to be refused before it is charged at all.
// Of a key from a Directory it allocates nothing.
func (k *Key) TenantOf(principal string, maxPrincipals int) Tenant {
	if k.rank == nil {
		prepared := *k
		prepared.prepare()
		k = &prepared
	}
	if k.fixed != (Tenant{}) {
		return k.fixed
	}
	if i, listed := k.rank[principal]; listed && i < maxPrincipals && principal != "" {
		return k.tenants[i]
	}
	return k.overflow
}

// prepare works out what TenantOf and AllowsUser answer from.
func (k *Key) prepare() {
	k.rank, k.tenants, k.fixed = make(map[string]int, len(k.Users)), nil, Tenant{}
	for _, u := range k.Users {
		if _, again := k.rank[u]; again {
			continue
		}
		k.rank[u] = len(k.tenants)
		k.tenants = append(k.tenants, NewTenant(KindHuman, u))
	}
	switch {
	case k.Tenant != "":
		k.fixed = NewTenant(KindTenant, k.Tenant)
	case k.AllUsers():
		k.fixed = NewTenant(KindKey, k.ID)
	}
	k.overflow = NewTenant(KindKey, k.ID+overflowSuffix)
}
