package vault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentgw/internal/store"
)

// Entry is what may be known of a stored credential.
type Entry struct {
	Ref
	Kind      string // KindSecret, KindClient or KindToken
	Host      string // that it is for alone; "": not said
	Reconnect bool   // a token that a person has to renew, by connecting the account again
	UpdatedAt time.Time
}

// The kinds of entries.
const (
	KindSecret = secretField
	KindClient = clientField // the secret of an oauth2 client
	KindToken  = tokenField  // of an account that is connected
)

// Entries returns what s holds, by service and user. It needs no vault key.
func Entries(ctx context.Context, s Store) ([]Entry, error) {
	rows, err := s.Credentials(ctx)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, row := range rows {
		all = append(all, Entry{
			Ref: Ref{row.Service, row.User}, Kind: row.Field, Host: row.Host,
			Reconnect: row.State == stateReconnect, UpdatedAt: row.UpdatedAt,
		})
	}
	return all, nil
}

// Remove removes a credential from s, which needs no vault key either: a
// credential whose key is lost can still be cleared away. With a person's last one goes
// the data key that it was sealed under, and with it what copies without the keys hold.
// A Vault over s drops it when it reloads. ErrMissing: there is none.
func Remove(ctx context.Context, s Store, ref Ref) error {
	err := s.RemoveCredential(ctx, ref.Service, ref.User)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%s: %w", ref, ErrMissing)
	}
	return err
}

// Index knows which credentials there are and none of them: for who asks whether a
// call would find its own, without the key of the vault.
type Index map[Ref]bool

// NewIndex returns the index of entries: of those that a call can use.
func NewIndex(entries []Entry) Index {
	x := Index{}
	for _, e := range entries {
		if e.Kind != KindClient && !e.Reconnect {
			x[e.Ref] = true
		}
	}
	return x
}

// Open finds a credential as Tokens.Open does. What it returns puts nothing on a
// request, and whether the secret fits the form is not known; nor whether a client
// would be given a token of its own, or one that has expired can be renewed.
func (x Index) Open(_ context.Context, ref Ref, form Form) (Credential, error) {
	ref, none, err := form.row(ref)
	none = none || form.OAuth2 != nil && form.OAuth2.OfItself
	if err == nil && !none && !x[ref] {
		err = fmt.Errorf("%s: %w", ref, ErrMissing)
	}
	return Credential{}, err
}
