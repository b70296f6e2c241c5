package vault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/internal/secret"
	"agentgw/internal/store"
)

// What Open and Set refuse with.
var (
	// ErrMissing says that no credential is stored there.
	ErrMissing = errors.New("no credential is stored")
	// ErrCorrupt says that what is stored does not open where it stands: its
	// bytes were changed, or it belongs elsewhere.
	ErrCorrupt = errors.New("what is stored does not open: it was changed, or belongs to another row")
	// ErrUnfit says that a secret cannot be used in the service's form.
	ErrUnfit = errors.New("the credential cannot be used")
	// ErrHost says that a credential was stored for another host than that to
	// which it would go now.
	ErrHost = errors.New("the credential is not for that host")
)

// Store is what a vault needs of a store; see package store for the errors.
type Store interface {
	DataKeys(ctx context.Context) ([]store.DataKey, error)
	AddDataKey(ctx context.Context, k store.DataKey) error
	Credentials(ctx context.Context) ([]store.Credential, error)
	PutCredential(ctx context.Context, c store.Credential, by store.DataKey) error
	RemoveCredential(ctx context.Context, service, user string) error
}

// Ref names a credential. The empty User is the shared one.
type Ref struct {
	Service, User string
}

func (r Ref) String() string {
	if r.User == "" {
		return fmt.Sprintf("service %q, shared", r.Service)
	}
	return fmt.Sprintf("service %q, user %q", r.Service, r.User)
}

// noTenant is the tenant of the shared credentials, and of what an earlier version
// sealed of persons'.
const noTenant = ""

// tenant is whose data key a credential is sealed under: each person's own, under the
// name by which limits know persons, and one for all that is shared.
func (r Ref) tenant() string {
	if r.User == "" {
		return noTenant
	}
	return "human:" + r.User
}

// The fields that a row can be.
const (
	secretField = "secret"        // what the simple types have
	clientField = "client_secret" // of an oauth2 service, in its shared credential
	tokenField  = "token"         // of an account that is connected, as a record
)

// field names a row.
type field struct {
	Ref
	name string
}

// Vault holds a store's sealed rows. Safe for concurrent use: Open never waits
// for a reload or a change.
type Vault struct {
	store Store
	kek   KEK

	reading sync.Mutex // one read of the store at a time, lest an older one end last
	rows    atomic.Pointer[contents]
}

// contents is the store as last read. It never changes, but for what is made of it.
type contents struct {
	keys      ring
	rows      map[field]store.Credential
	redactors sync.Map // by redacted: to make one takes longer than a call may
}

// Load returns a vault over s. ErrWrongKEK: s was sealed under another key.
func Load(ctx context.Context, s Store, kek KEK) (*Vault, error) {
	v := &Vault{store: s, kek: kek}
	if err := v.Reload(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// Reload reads the store again, for when its generation has moved. On an error
// the vault keeps what it had; but where another vault key took the place of its own,
// the data keys alone are what it keeps. What they do not open is ErrCorrupt, and
// what was removed or replaced is so here, too.
func (v *Vault) Reload(ctx context.Context) error {
	v.reading.Lock()
	defer v.reading.Unlock()
	// Rows before keys: whoever adds a row has added its key first, so a key
	// read afterwards is never older than the row that needs it.
	rows, err := v.store.Credentials(ctx)
	if err != nil {
		return err
	}
	wrapped, err := v.store.DataKeys(ctx)
	if err != nil {
		return err
	}
	var before ring
	if had := v.rows.Load(); had != nil {
		before = had.keys
	}
	keys, err := unwrapAll(v.kek, wrapped, before)
	if err != nil && before == nil {
		return err
	}
	if err != nil {
		keys = before
	}
	c := &contents{keys: keys, rows: make(map[field]store.Credential, len(rows))}
	for _, row := range rows {
		c.rows[field{Ref{row.Service, row.User}, row.Field}] = row
	}
	v.rows.Store(c)
	return err
}

// Open returns the credential that a call to ref.Service on behalf of ref.User
// needs, in the form that the service wants. A form per user takes that user's
// credential and never the shared one; another form takes the shared one,
// whoever the user is. A form of type none needs nothing stored. Tokens of
// oauth2 are Tokens' to open. It waits for nothing.
//
// Errors: ErrMissing, ErrCorrupt, ErrHost, ErrUnfit. None holds any part of a secret.
func (v *Vault) Open(_ context.Context, ref Ref, form Form) (Credential, error) {
	ref, none, err := form.row(ref)
	if none || err != nil {
		return Credential{}, err
	}
	c := v.rows.Load()
	text, _, err := c.read(field{ref, secretField}, form.Host)
	if err == nil {
		err = form.check(text)
	}
	if err != nil {
		return Credential{}, fmt.Errorf("%s: %w", ref, err)
	}
	return Credential{form: form, secret: secret.New(text), redactor: c.redactor(ref, form.Type, text)}, nil
}

// credential is what puts text, which these contents have, on a request.
func (c *contents) credential(ref Ref, form Form, text string) Credential {
	return Credential{form: form, secret: secret.New(text), redactor: c.redactor(ref, form.Type, text)}
}

// read unseals a row that is to be sent to host, "" where that is not asked.
func (c *contents) read(of field, host string) (string, store.Credential, error) {
	row, ok := c.rows[of]
	if !ok {
		return "", row, ErrMissing
	}
	text, err := c.keys.openRow(row)
	if err == nil && row.Host != "" && host != "" && row.Host != host {
		err = fmt.Errorf("%w: it was set for %s and not for %s; set it again if it is for that, too", ErrHost, row.Host, host)
	}
	return text, row, err
}

// row is the row that a call has its credential in, or none, where it needs none.
func (f Form) row(ref Ref) (_ Ref, none bool, err error) {
	switch {
	case f.Type == "" || f.Type == TypeNone:
		return Ref{}, true, nil
	case !f.PerUser:
		ref.User = ""
	case ref.User == "":
		// Not the shared row, which this would name.
		return Ref{}, false, fmt.Errorf("service %q, on nobody's behalf: %w", ref.Service, ErrMissing)
	}
	return ref, false, nil
}

// openRow unseals a row in its own place. Whoever has another person's data key, and
// can write to the store, could make one that opens: it is none.
func (r ring) openRow(row store.Credential) (string, error) {
	if len(row.Sealed) == 0 || row.Tenant != noTenant && row.Tenant != (Ref{row.Service, row.User}).tenant() {
		return "", ErrCorrupt
	}
	aead := r[row.Tenant][row.Sealed[0]].aead
	if aead == nil {
		return "", ErrCorrupt
	}
	text, err := open(aead, row.Sealed[1:], placeOf(row).additionalData())
	if err != nil {
		return "", ErrCorrupt // which check failed is nobody's business
	}
	return string(text), nil
}

func placeOf(row store.Credential) place {
	return place{tenant: row.Tenant, service: row.Service, user: row.User, field: row.Field, version: row.Version, host: row.Host}
}

// Set stores a credential, in the place of the one that is there. form is the
// service's where it is known, and may be zero; a credential that is set with the
// Host of one is for that host alone. ErrUnfit: the secret does not fit the form, or
// not every form where it is zero.
func (v *Vault) Set(ctx context.Context, ref Ref, form Form, text secret.Text, now time.Time) error {
	if err := form.check(text.Reveal()); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	return v.set(ctx, field{ref, secretField}, form.Host, text.Reveal(), now)
}

// SetClient stores the secret of an oauth2 service's client, for the host of its
// token endpoint alone. ErrUnfit as Set.
func (v *Vault) SetClient(ctx context.Context, service string, o *OAuth2, text secret.Text, now time.Time) error {
	ref := Ref{Service: service}
	if err := (Form{Type: TypeOAuth2}).check(text.Reveal()); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	return v.set(ctx, field{ref, clientField}, o.Host(), text.Reveal(), now)
}

// SetRefresh stores an account by a refresh token that somebody has of elsewhere, in
// the place of the account that is there. ErrUnfit as Set.
func (v *Vault) SetRefresh(ctx context.Context, ref Ref, form Form, text secret.Text, now time.Time) error {
	if err := form.check(text.Reveal()); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	r := record{Refresh: text.Reveal(), Host: form.OAuth2.Host()}
	return v.set(ctx, field{ref, tokenField}, form.Host, r.text(), now)
}

// set puts a row in the place of whichever is there.
func (v *Vault) set(ctx context.Context, of field, host, text string, now time.Time) error {
	// Each turn that loses to another process is one that another has won.
	for {
		if err := v.Reload(ctx); err != nil {
			return err
		}
		err := v.put(ctx, of, v.rows.Load().rows[of].Version, host, text, now)
		if !errors.Is(err, store.ErrConflict) {
			return errors.Join(err, v.Reload(ctx))
		}
	}
}

// put seals a row as the version after the one that was last read. ErrConflict of
// the store: another process has put that one, or changed the data key.
func (v *Vault) put(ctx context.Context, of field, version int64, host, text string, now time.Time) error {
	k, err := v.sealing(ctx, of.tenant(), now)
	if err != nil {
		return err
	}
	row := store.Credential{Service: of.Service, User: of.User, Field: of.name, Host: host, Version: version + 1, UpdatedAt: now}
	if err := k.seal(&row, text); err != nil {
		return err
	}
	return v.store.PutCredential(ctx, row, k.row)
}

// seal makes text what row holds, under k.
func (k dataKey) seal(row *store.Credential, text string) (err error) {
	row.Tenant = k.row.Tenant
	row.Sealed, err = seal(k.aead, []byte{k.row.Number}, []byte(text), placeOf(*row).additionalData())
	return err
}

// sealing returns the data key of a tenant to seal with, and makes the first one.
func (v *Vault) sealing(ctx context.Context, tenant string, now time.Time) (dataKey, error) {
	k := v.rows.Load().keys.newest(tenant)
	if k.aead != nil {
		return k, nil
	}
	if err := addDataKey(ctx, v.store, v.kek, tenant, 0, now); err != nil {
		return k, err
	}
	if err := v.Reload(ctx); err != nil {
		return k, err
	}
	if k = v.rows.Load().keys.newest(tenant); k.aead == nil {
		return k, fmt.Errorf("%w: the data key that was just stored was removed", store.ErrConflict)
	}
	return k, nil
}
