package oidc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/identity"
	"agentgw/internal/registry"
)

// Issuers know the keys of issuers from one registry to the next. nil knows none.
// Safe for concurrent use.
type Issuers struct {
	transport func(allowPrivate bool) *http.Transport
	clock     clockwork.Clock
	log       *slog.Logger

	mu   sync.Mutex
	sets map[place]*keySet
}

// place is where the keys of an issuer are from, and by which way.
type place struct {
	issuer       string
	allowPrivate bool
}

// NewIssuers returns Issuers that ask over these transports, of which the one for
// issuers without allow_private MUST refuse to dial what is not public.
func NewIssuers(transport func(allowPrivate bool) *http.Transport, clock clockwork.Clock, log *slog.Logger) *Issuers {
	return &Issuers{transport: transport, clock: clock, log: log, sets: map[place]*keySet{}}
}

// Tokens takes the tokens of the issuers of one registry. It never changes. nil
// takes none. Safe for concurrent use.
type Tokens struct {
	issuers  map[string]*issuer
	verified *verified
}

// issuer is one entry of the registry.
type issuer struct {
	entry      *registry.Issuer
	conditions Conditions
	keys       *keySet
}

// Conditions decide whether the expression of a scope holds of claims. An error: it has
// no result.
type Conditions interface {
	Holds(s *registry.Scope, claims map[string]any) (bool, error)
}

// Tokens returns what takes the tokens of these issuers, whose scopes with an
// expression are given where conditions say so, and begins to ask for the
// keys of those that are new: it waits for none, and none has to answer. The keys of
// issuers that are not among them are forgotten.
func (s *Issuers) Tokens(entries []registry.Issuer, conditions Conditions) *Tokens {
	if s == nil || len(entries) == 0 {
		return nil
	}
	t := &Tokens{issuers: make(map[string]*issuer, len(entries)), verified: newVerified()}
	s.mu.Lock()
	defer s.mu.Unlock()
	sets := make(map[place]*keySet, len(entries))
	for i := range entries {
		e := &entries[i]
		at := place{e.Issuer, e.AllowPrivate}
		set := s.sets[at]
		if set == nil {
			set = newKeySet(e.Issuer, newClient(s.transport(e.AllowPrivate)), s.clock, s.log)
		}
		set.current()
		sets[at] = set
		t.issuers[e.Issuer] = &issuer{e, conditions, set}
	}
	s.sets = sets
	return t
}

// Serves reports whether tokens with which that caller came are taken still.
func (t *Tokens) Serves(caller *identity.Key) bool {
	if t == nil {
		return false
	}
	i := t.issuers[caller.Issuer]
	return i != nil && i.entry.Audience == caller.Audience && listed(i.entry.AZP, caller.Client)
}

// Refusal says why a token was refused. It quotes nothing of the token, and is for
// a log: who sent it is told nothing.
type Refusal struct {
	Issuer string // of the registry; "" where it is of none
	Why    error
}

func (r *Refusal) Error() string {
	if r.Issuer == "" {
		return "the token was refused: " + r.Why.Error()
	}
	return fmt.Sprintf("a token of %s was refused: %v", r.Issuer, r.Why)
}

func (r *Refusal) Unwrap() error { return r.Why }

// Authenticate returns whose token it is, if it is one that is taken at now. The
// error is a *Refusal. It waits for an issuer only where the token is signed with a
// key that is not known yet, and no longer than until ctx ends.
func (t *Tokens) Authenticate(ctx context.Context, text string, now time.Time) (*identity.Secret, error) {
	if t == nil {
		return nil, &Refusal{Why: errIssuer}
	}
	if len(text) > maxToken {
		return nil, &Refusal{Why: errLong}
	}
	hash := sha256.Sum256([]byte(text))
	if caller := t.verified.get(hash, now); caller != nil {
		return caller, nil
	}
	parsed, err := parse(text)
	if err != nil {
		return nil, &Refusal{Why: err}
	}
	from := t.issuers[parsed.claims.issuer()]
	if from == nil {
		return nil, &Refusal{Why: errIssuer}
	}
	caller, expiry, err := from.authenticate(ctx, parsed, now)
	if err != nil {
		return nil, &Refusal{from.entry.Issuer, err}
	}
	t.verified.put(hash, caller, expiry, now)
	return caller, nil
}

// authenticate takes a token that claims to be of this issuer. What costs little is
// looked at first, as any stranger can have all of it done.
func (i *issuer) authenticate(ctx context.Context, t *token, now time.Time) (*identity.Secret, time.Time, error) {
	c := t.claims
	expiry, err := c.times(now)
	if err := cmp.Or(err, c.audience(i.entry.Audience), c.party(i.entry.AZP), c.unbound()); err != nil {
		return nil, expiry, err
	}
	if err := i.keys.verify(ctx, t); err != nil {
		return nil, expiry, err
	}
	caller, err := i.caller(c, expiry)
	return caller, expiry, err
}
