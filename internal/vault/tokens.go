package vault

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/oauth"
	"agentgw/internal/secret"
	"agentgw/internal/store"
)

// What Tokens.Open refuses with besides the errors of Vault.Open.
var (
	// ErrReconnect says that a token has ended and no request can renew it: a person
	// has to connect the account again.
	ErrReconnect = errors.New("the account has to be connected again")
	// ErrRenewal says that a token could not be renewed now, and may be later.
	ErrRenewal = errors.New("the token could not be renewed")
	// ErrConnect says that a token endpoint gave no token for a code, or none that
	// can be used.
	ErrConnect = errors.New("no token came for the code")
)

// stateReconnect is the state of an account whose refresh token is refused for good.
const stateReconnect = "reconnect_required"

// TokenStore is what Tokens needs of a store; see package store for the errors.
type TokenStore interface {
	Store
	MarkCredential(ctx context.Context, c store.Credential, state string) error
	ClaimRenewal(ctx context.Context, service, user, owner string, now, until time.Time) error
	EndRenewal(ctx context.Context, service, user, owner string) error
}

// Tokens opens credentials as a Vault does, and those of oauth2 services too, whose
// tokens it keeps fresh: ahead of their end, in the background while they are good,
// and once for all who need one, in this process and in every other on the store. A
// new token is stored before anybody uses it.
//
// Safe for concurrent use. Close it before the store.
type Tokens struct {
	vault *Vault
	store TokenStore
	clock clockwork.Clock
	log   *slog.Logger
	over  func(allowPrivate bool) http.RoundTripper

	ending context.Context // done once Close has begun
	end    context.CancelFunc

	mu      sync.Mutex
	running map[Ref]*turn
	failed  map[Ref]failure
	turns   sync.WaitGroup
}

// turn is one renewal that is under way.
type turn struct {
	done chan struct{}
	err  error // once done
}

// failure is a renewal that went wrong, and until when none is tried of the same
// version: an endpoint that is down is not asked by each call.
type failure struct {
	version int64
	until   time.Time
	pause   time.Duration
	err     error
}

// NewTokens returns tokens over a vault and its store. over gives the transport by
// which token endpoints are asked: it must guard what it dials, and follow no
// redirect.
func NewTokens(v *Vault, s TokenStore, clock clockwork.Clock, log *slog.Logger, over func(allowPrivate bool) http.RoundTripper) *Tokens {
	t := &Tokens{vault: v, store: s, clock: clock, log: log, over: over, running: map[Ref]*turn{}, failed: map[Ref]failure{}}
	t.ending, t.end = context.WithCancel(context.Background())
	return t
}

// Close waits for the renewals under way: a token endpoint that has been asked has
// spent the refresh token, and its answer must be stored. That takes no longer than
// an endpoint is given to answer.
func (t *Tokens) Close() {
	t.mu.Lock()
	t.end()
	t.mu.Unlock()
	t.turns.Wait()
}

// Open is Vault.Open. It waits, for a token that has to be renewed first, at most
// until ctx ends. Where that fails and the old token has life left, that is what it
// returns. Errors besides Vault.Open's: ErrReconnect, ErrRenewal, ctx's.
func (t *Tokens) Open(ctx context.Context, ref Ref, form Form) (Credential, error) {
	if form.Type != TypeOAuth2 {
		return t.vault.Open(ctx, ref, form)
	}
	ref, _, err := form.row(ref)
	if err != nil {
		return Credential{}, err
	}
	a, err := t.fresh(ctx, ref, form)
	if err != nil {
		return Credential{}, fmt.Errorf("%s: %w", ref, err)
	}
	return a.in.credential(ref, form, a.Access), nil
}

func (t *Tokens) fresh(ctx context.Context, ref Ref, form Form) (account, error) {
	a, err := t.vault.account(ref, form)
	if err != nil {
		return a, err
	}
	switch a.needs(form.OAuth2, t.clock.Now()) {
	case nothing:
		return a, nil
	case reconnecting:
		return a, fmt.Errorf("%w: its token has ended, and no refresh token came with it", ErrReconnect)
	case renewing:
		t.renew(ref, form, a)
		return a, nil
	}
	failed, before := t.wait(ctx, t.renew(ref, form, a)), a.row.Version
	a, err = t.vault.account(ref, form)
	if err == nil && failed == nil && a.row.Version != before && a.Access == "" {
		return t.fresh(ctx, ref, form) // stored anew meanwhile, by a refresh token that nobody has used
	}
	if err == nil && !a.alive(t.clock.Now()) {
		if err = failed; err == nil {
			err = fmt.Errorf("%w: the new one had no life left", ErrRenewal)
		}
	}
	return a, err
}

// patience is how long a call waits for a renewal, its own or another's: longer
// than the one who has the claim may take.
const patience = claim + 5*time.Second

func (t *Tokens) wait(ctx context.Context, renewal *turn) error {
	timer := t.clock.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-renewal.done:
		return renewal.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.Chan():
		return fmt.Errorf("%w in %s", ErrRenewal, patience)
	}
}

// renew returns the turn in which the account is renewed: the one under way, or a
// new one, or what the last one failed with if that was a moment ago. It does not
// wait, and no caller's hanging up ends it.
func (t *Tokens) renew(ref Ref, form Form, a account) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.running[ref]; r != nil {
		return r
	}
	r := &turn{done: make(chan struct{})}
	f, ok := t.failed[ref]
	switch {
	case t.ending.Err() != nil:
		r.err = fmt.Errorf("%w: the gateway is shutting down", ErrRenewal)
	case ok && f.version == a.row.Version && t.clock.Now().Before(f.until):
		r.err = f.err
	default:
		t.running[ref] = r
		t.turns.Go(func() {
			err := t.turn(ref, form, a.row.Version)
			t.mu.Lock()
			defer t.mu.Unlock()
			r.err = err
			t.settle(ref, a.row.Version, err)
			delete(t.running, ref)
			close(r.done)
		})
		return r
	}
	close(r.done)
	return r
}

// The pause after a failure, which doubles with each.
const (
	shortPause = time.Second
	longPause  = 30 * time.Second
)

// settle notes how a turn ended.
func (t *Tokens) settle(ref Ref, version int64, err error) {
	before := t.failed[ref]
	if err == nil || errors.Is(err, ErrReconnect) {
		delete(t.failed, ref)
	} else {
		pause := shortPause
		if before.version == version && before.pause > 0 {
			pause = min(2*before.pause, longPause)
		}
		t.failed[ref] = failure{version: version, until: t.clock.Now().Add(pause), pause: pause, err: err}
	}
	if err != nil {
		t.log.Warn("a token could not be renewed", "service", ref.Service, "user", ref.User, "error", err)
	}
}

const (
	// asking is how long a token endpoint may take.
	asking = 20 * time.Second
	// claim is how long the one who renews has it to himself. It is longer than
	// asking, so that who is alive has its answer, or none, before another may ask.
	claim = 25 * time.Second
	// look is how often one who waits for another looks whether that is done.
	look = 250 * time.Millisecond
)

// turn renews an account that was at that version, or finds that another process has.
func (t *Tokens) turn(ref Ref, form Form, from int64) error {
	owner := crand.Text()       // of this turn, among all processes
	ctx := context.Background() // callers come and go
	for {
		now := t.clock.Now()
		err := t.store.ClaimRenewal(ctx, ref.Service, ref.User, owner, now, now.Add(claim))
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("%w: %w", ErrRenewal, err)
		}
		select {
		case <-t.clock.After(look):
		case <-t.ending.Done():
			return fmt.Errorf("%w: the gateway is shutting down", ErrRenewal)
		}
		if moved, err := t.moved(ctx, ref, form, from); moved || err != nil {
			return err
		}
	}
	defer func() { _ = t.store.EndRenewal(ctx, ref.Service, ref.User, owner) }() // else its time ends it
	// What was read before the claim may be what another has renewed since, and a
	// refresh token that was spent must not be shown again.
	if moved, err := t.moved(ctx, ref, form, from); moved || err != nil {
		return err
	}
	a, err := t.vault.account(ref, form)
	if err != nil {
		return err
	}
	token, err := t.ask(ref, form, a)
	var refused *oauth.Error
	switch {
	case errors.As(err, &refused) && refused.Final() && a.Refresh != "":
		return t.mark(ctx, ref, form, a, refused)
	case errors.Is(err, ErrMissing), errors.Is(err, ErrHost), errors.Is(err, ErrCorrupt):
		return err // there is no client secret to ask with
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRenewal, err)
	}
	return t.keep(ctx, ref, form, a, token, owner)
}

// moved reads the store anew and reports whether the account is at another version.
func (t *Tokens) moved(ctx context.Context, ref Ref, form Form, from int64) (bool, error) {
	if err := t.vault.Reload(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", ErrRenewal, err)
	}
	a, err := t.vault.account(ref, form)
	return a.row.Version != from, err
}

// ask asks the token endpoint, once.
func (t *Tokens) ask(ref Ref, form Form, a account) (oauth.Token, error) {
	client, err := t.vault.client(ref.Service, form.OAuth2)
	if err != nil {
		return oauth.Token{}, err
	}
	ctx, cancel := clockwork.WithTimeout(context.Background(), t.clock, asking)
	defer cancel()
	if form.OAuth2.OfItself {
		return client.OfItself(ctx, t.over(form.OAuth2.AllowPrivate))
	}
	return client.Renew(ctx, t.over(form.OAuth2.AllowPrivate), secret.New(a.Refresh))
}

// mark has the account wait for a person, unless it has been connected anew meanwhile.
func (t *Tokens) mark(ctx context.Context, ref Ref, form Form, a account, refused error) error {
	err := t.store.MarkCredential(ctx, a.row, stateReconnect)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %w", ErrRenewal, errors.Join(refused, err))
	}
	if moved, err := t.moved(ctx, ref, form, a.row.Version); moved {
		return err
	}
	return fmt.Errorf("%w: %w", ErrReconnect, refused)
}

// keep stores a token before anybody may use it. Where the store fails it tries that
// again and again, and does not ask for another: the refresh token that yielded it
// may be spent. Where the account has been connected anew meanwhile, that counts.
func (t *Tokens) keep(ctx context.Context, ref Ref, form Form, a account, token oauth.Token, owner string) error {
	came := t.clock.Now()
	text := newRecord(token, a.Refresh, form.OAuth2.Host(), came, rand.Float64()).text()
	for pause := look; ; pause = min(2*pause, claim/2) {
		err := t.vault.put(ctx, field{ref, tokenField}, a.row.Version, form.Host, text, came)
		if errors.Is(err, store.ErrConflict) {
			// Or is it the same version still, and the data key alone is another?
			var moved bool
			if moved, err = t.moved(ctx, ref, form, a.row.Version); moved {
				break
			} else if err == nil {
				continue
			}
		}
		if err == nil {
			break
		}
		t.log.Error("a new token could not be stored; nobody uses it until it is", "service", ref.Service, "user", ref.User, "error", err)
		select {
		case <-t.clock.After(pause):
		case <-t.ending.Done():
			return fmt.Errorf("%w: the new token is lost, as it could not be stored: %w", ErrRenewal, err)
		}
		// Others must not ask meanwhile. That may fail too: the store is unwell.
		now := t.clock.Now()
		_ = t.store.ClaimRenewal(ctx, ref.Service, ref.User, owner, now, now.Add(claim))
	}
	if err := t.vault.Reload(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrRenewal, err)
	}
	return nil
}

// Connect turns the code that a person came back with into the tokens of an account,
// and stores them in the place of those that are there. Errors: ErrConnect, those of
// the store, and those of Open that say why there is no client secret.
func (t *Tokens) Connect(ctx context.Context, ref Ref, form Form, code string, a oauth.Authorization) error {
	client, err := t.vault.client(ref.Service, form.OAuth2)
	if err != nil {
		return err
	}
	ctx, cancel := clockwork.WithTimeout(ctx, t.clock, asking)
	defer cancel()
	token, err := client.Exchange(ctx, t.over(form.OAuth2.AllowPrivate), code, a)
	if err == nil {
		err = form.check(token.Access.Reveal())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConnect, err)
	}
	now := t.clock.Now()
	r := newRecord(token, "", form.OAuth2.Host(), now, rand.Float64())
	return t.vault.set(ctx, field{ref, tokenField}, form.Host, r.text(), now)
}
