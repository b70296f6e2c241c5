package identity

import "time"

// Everything is the entry of a scope's list that stands for every service or
// every user.
const Everything = "*"

// Key is what is known of a gateway key: never its text. Fill in the exported
// fields and hand it to NewDirectory; a Key that came out of a Directory must
// not be changed.
type Key struct {
	ID     string
	Digest [32]byte // SHA-256 of the whole key; of the newest, while it is rotated

	Retiring *Retiring // the secret that Digest's replaces; nil: none

	Services []string // names, or "*"
	Actions  []string // patterns over service.action; empty: every action of Services
	Users    []string // names, or "*"; their order decides which get a tenant of their own

	Tenant string  // a named tenant, or ""
	Limits *Limits // overrides the default key limit; nil: the default

	User, Space, Org string // owner identities, for rules; "" where unknown

	// Of a caller who came with a token, and has no key: whose token, for whom, and
	// which client had it; else "". See NewCaller.
	Issuer, Audience, Client string

	// Of a caller of an open service who came without a key: which service; else "". He
	// has no tenant. See NewOpenCaller.
	Open string

	CreatedAt time.Time // zero: unknown, as for keys of the registry
	NotBefore time.Time // zero: no beginning
	NotAfter  time.Time // the first instant at which the key is no longer valid; zero: no end

	Origin string // where the key was declared, for messages; "registry.yaml:12:5"

	// Filled in by NewDirectory, so that a call allocates nothing.
	rank     map[string]int // position of each of Users, first mention counting
	tenants  []Tenant       // one for each position
	fixed    Tenant         // the one tenant of a key with a named tenant or with every user
	overflow Tenant
	number   int
}

// Number is the key's place among the Keys of the Directory that it came out
// of: what others keep of each key can stand in a slice of the same order.
func (k *Key) Number() int { return k.number }

// Limits is a key's own rate: RPS tokens a second into a bucket of Burst. An
// RPS of 0 is a disabled limit.
type Limits struct {
	RPS   float64
	Burst int
}

// ValidAt reports whether the key is neither too young nor too old at now.
func (k *Key) ValidAt(now time.Time) bool {
	return !now.Before(k.NotBefore) && (k.NotAfter.IsZero() || now.Before(k.NotAfter))
}
