// Package storetest is what every store owes its users, as a test suite: run it
// over an implementation to see whether it keeps the contract of package store.
package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/store"
)

// Store is all that the program asks of a store.
type Store interface {
	AddKey(ctx context.Context, k store.Key) error
	Keys(ctx context.Context) ([]store.Key, error)
	RevokeKey(ctx context.Context, id string, now time.Time) error
	RotateKey(ctx context.Context, id string, digest [32]byte, now, until time.Time) error
	SecretsUsed(ctx context.Context, used map[[32]byte]time.Time) error
	LastUses(ctx context.Context) (map[[32]byte]time.Time, error)

	PutCredential(ctx context.Context, c store.Credential, by store.DataKey) error
	ResealCredential(ctx context.Context, was string, c store.Credential, by store.DataKey) error
	Credentials(ctx context.Context) ([]store.Credential, error)
	MarkCredential(ctx context.Context, c store.Credential, state string) error
	RemoveCredential(ctx context.Context, service, user string) error
	ClaimRenewal(ctx context.Context, service, user, owner string, now, until time.Time) error
	EndRenewal(ctx context.Context, service, user, owner string) error
	AddLink(ctx context.Context, l store.Link, now time.Time) error
	FindLink(ctx context.Context, digest [32]byte, now time.Time) (store.Link, error)
	TakeLink(ctx context.Context, digest [32]byte, now time.Time) (store.Link, error)
	AddDataKey(ctx context.Context, k store.DataKey) error
	DataKeys(ctx context.Context) ([]store.DataKey, error)
	RewrapDataKey(ctx context.Context, was string, k store.DataKey) error
	RewrapParamsKey(ctx context.Context, was string, k store.ParamsKey) error

	AddParamsKeys(ctx context.Context, keys ...store.ParamsKey) error
	ParamsKeys(ctx context.Context) ([]store.ParamsKey, error)
	RemoveParamsKey(ctx context.Context, tenant string, now time.Time) (store.ParamsKey, error)

	RewrapRoot(ctx context.Context, was string, r store.Root) error
	AddRoot(ctx context.Context, r store.Root, after string) error
	Roots(ctx context.Context) ([]store.Root, error)
	RevokeDelegations(ctx context.Context, r store.Revocation) error
	Revocations(ctx context.Context) ([]store.Revocation, error)

	Generation(ctx context.Context) (int64, error)
	Watch(ctx context.Context, clock clockwork.Clock, every time.Duration, onChange func(int64) error, onError func(error))
	Close() error
}

// Run runs the suite. open returns a fresh, empty state, as a function that
// opens it once more, as another process would.
func Run(t *testing.T, open func(t *testing.T) (again func() Store)) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, a, b Store)
	}{
		{"keys come back whole", keysComeBackWhole},
		{"a key is added once", keyOnce},
		{"revoking", revoking},
		{"rotating", rotating},
		{"last uses", lastUses},
		{"credentials by version", credentialVersions},
		{"the state of a credential is one version's", credentialStates},
		{"a credential is sealed anew", credentialOwners},
		{"one renews at a time", renewals},
		{"a link is good once", links},
		{"keys are wrapped anew", rewrapping},
		{"names are kept apart", namesApart},
		{"data keys", dataKeys},
		{"params keys", paramsKeys},
		{"delegation roots", delegationRoots},
		{"revoked delegations", revokedDelegations},
		{"the generation moves with each change alone", generation},
		{"two write at once", twoWriters},
		{"of a crowd one", oneOfACrowd},
		{"a crowd", allOfACrowd},
		{"watching", watching},
		{"watching through failures", watchingFailures},
	} {
		t.Run(c.name, func(t *testing.T) {
			again := open(t)
			a, b := again(), again()
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			c.test(t, a, b)
		})
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}
