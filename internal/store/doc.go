// Package store keeps what outlives a gateway process and is shared by all of
// them: gateway keys (digests only), sealed credentials and who renews one, links by
// which people connect accounts (digests only), wrapped data keys, the wrapped keys
// that receipts are salted from and delegations signed with, what was taken back of
// delegations, and a generation counter.
//
// The counter grows by one with every change that others have to act on, in the
// transaction of the change, so whoever sees a generation sees everything up to it, and polling one number
// is enough to follow changes that another process makes. Readers are expected
// to hold the rows in memory and to read them again when it moves; nothing here
// is made to be asked once per call.
//
// Nothing in the store is readable as a secret: a key is its SHA-256, a
// credential is sealed by package vault, which also wraps its data keys.
//
// It stands in a file of SQLite, for the processes of one machine, or in PostgreSQL, for
// those of many. What either owes its users is the suite in storetest.
package store

import (
	"errors"
	"time"
)

var (
	// ErrExists says that the id or the digest of a key, or the number of a
	// data key, is taken, or that a tenant has a params key already. A revoked key keeps its id, so that an audit trail
	// never means two keys by one name.
	ErrExists = errors.New("exists already")
	// ErrNotFound says that there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrRevoked says that a key was revoked, and so has no use for a new secret.
	ErrRevoked = errors.New("was revoked")
	// ErrTwoSecrets says that a key has two secrets already.
	ErrTwoSecrets = errors.New("has two secrets already")
	// ErrConflict says that a credential is not at the version that the
	// change was made from, or that there is a newer root. Read again and repeat.
	ErrConflict = errors.New("changed by another process meanwhile")
	// ErrNewer says that the state was written by a newer program, which may
	// rely on what this one does not know.
	ErrNewer = errors.New("written by a newer version of this program")
)

// Key is a gateway key as stored. Zero times mean: unknown, no bound, not
// revoked. Times are kept to the nanosecond.
type Key struct {
	ID                       string
	Digest                   [32]byte  // SHA-256 of the whole key; of the newest secret
	Retiring                 *Retiring // the secret before it; nil: none
	Services, Actions, Users []string
	Tenant                   string
	Limits                   *Limits // nil: the default
	User, Space, Org         string
	CreatedAt                time.Time
	NotBefore, NotAfter      time.Time
	RevokedAt                time.Time
}

// Retiring is the older of two secrets of a key, until NotAfter, which is not zero.
type Retiring struct {
	Digest   [32]byte
	NotAfter time.Time
}

// Limits is a key's own rate, in tokens a second, and its burst.
type Limits struct {
	RPS   float64
	Burst int
}

// Credential is one sealed field of a service's credential. Service, User and Field
// name the row; the empty User is the shared credential. Tenant is whose data key it is
// sealed under.
type Credential struct {
	Tenant, Service, User, Field string
	Version                      int64 // 1 for the first, one more for each change
	Sealed                       []byte
	UpdatedAt                    time.Time
	Host                         string // that it may be sent to alone; "": not said
	State                        string // what became of this version of it; "": nothing
}

// Link is what a person connects an account by: to the credential of that service
// and user. Its secret is not kept.
type Link struct {
	Digest        [32]byte // SHA-256 of the secret
	Service, User string
	ExpiresAt     time.Time
}

// DataKey is one of a tenant's data keys, wrapped. Wrapper tells which key
// wrapped it, without being of any use to unwrap it.
type DataKey struct {
	Tenant    string
	Number    byte
	Wrapper   string
	Wrapped   []byte
	CreatedAt time.Time
}

// ParamsKey is a key that the salts of a tenant's receipts come from, wrapped. A
// tenant has at most one in use. Of a removed one nothing is left but that it was.
type ParamsKey struct {
	ID        string // names it in receipts; never used again
	Tenant    string
	Wrapper   string // as of a DataKey
	Wrapped   []byte // nil: removed
	CreatedAt time.Time
	RemovedAt time.Time // zero: in use
}

// Root is a key that delegations are signed with, wrapped.
type Root struct {
	ID        string // the kid of what it signs; never used again
	Wrapper   string // as of a DataKey
	Wrapped   []byte
	CreatedAt time.Time
}

// What a Revocation takes back: one token, or all that an agent or a user had at that
// time.
const (
	RevokedToken = "token"
	RevokedAgent = "agent"
	RevokedUser  = "user"
)

// Revocation takes delegations back.
type Revocation struct {
	Kind      string // RevokedToken, RevokedAgent or RevokedUser
	Name      string
	RevokedAt time.Time
}
