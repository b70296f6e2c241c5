package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/admin"
	"agentgw/internal/config"
	"agentgw/internal/gateway"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
	extra "agentgw/internal/rules"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// reader reads the registry file and the settings anew.
type reader func() (*config.Settings, *registry.Snapshot, error)

// rules are what calls are decided by, of one state of the registry file.
type rules struct {
	settings  *config.Settings
	snapshot  *registry.Snapshot
	effective *registry.Effective
	extra     *extra.Set // the registry's rules, compiled
}

func newRules(settings *config.Settings, snapshot *registry.Snapshot) (rules, error) {
	effective, err := snapshot.Effective(defaults(settings))
	if err != nil {
		return rules{}, err
	}
	set, err := extra.Compile(snapshot)
	return rules{settings, snapshot, effective, set}, err
}

// live keeps the gateway in step with the registry file and the state store. A
// state of either that cannot be used leaves the last good one in force. Safe
// for concurrent use. Who looks at it never waits for a file or a store.
type live struct {
	started *config.Settings // as they were then; some are read at a start only
	read    reader
	store   *store.Store
	vault   *vault.Vault
	salts   *vault.Salts
	kek     vault.KEK
	gateway *gateway.Gateway
	clock   clockwork.Clock
	log     *slog.Logger
	keep    func(services, limits map[string]bool) // told what metrics may name
	inForce func(bool)                             // told whether the file, as it is, is in force
	uses    identity.Uses                          // of the secrets of all keys

	sealedOut atomic.Bool // the store wants another vault key than this process has

	reloads  sync.Mutex // held from reading the file to taking it over: who read last wins
	switches sync.Mutex // held while a view is made; not while the file is read, which a revoked key must not wait for
	state    atomic.Pointer[state]
	stored   *[]store.Key // as last read, for whoever holds switches; nil: never
}

// state is what is in force and, since begin, is never nil. It is replaced under
// switches.
type state struct {
	rules
	since   time.Time
	failure *admin.ReloadFailure // of the last reload; nil: the file is in force
}

// begin puts the first rules in force.
func (l *live) begin(ctx context.Context, first rules) error {
	l.switches.Lock()
	defer l.switches.Unlock()
	if err := l.switchLocked(ctx, first); err != nil {
		return err
	}
	return l.trust(ctx, first)
}

// refresh takes over the keys and credentials that the store holds now, and that
// of receipts whose keys are gone nothing more is to be known.
func (l *live) refresh(ctx context.Context) error {
	l.switches.Lock()
	defer l.switches.Unlock()
	running := l.state.Load().rules
	taken := errors.Join(l.salts.Reload(ctx), l.trust(ctx, running)) // whatever else is wrong
	keys, unfit, err := l.keys(ctx, running)
	err = errors.Join(err, taken)
	if !errors.Is(err, store.ErrAway) { // or nobody knows
		l.sealedOut.Store(errors.Is(err, vault.ErrWrongKEK))
	}
	if keys == nil {
		return err
	}
	// The others' changes, a revoked key above all, must not wait for somebody to mend
	// these, nor for a vault that does not open.
	for _, err := range unfit {
		l.log.Warn("a key of the state store is not served", "error", err)
	}
	return errors.Join(err, l.gateway.Use(running.settings, running.snapshot, running.effective, running.extra, keys))
}

// reload takes over the registry file as it is now. The next call of everybody
// is decided by it; a call under way keeps what it began with, also where its
// key or service is gone from the file. The error is all that is wrong with it.
// Unless somebody asked, what was logged of the same file is not logged again:
// the watcher's net looks every 30 s.
func (l *live) reload(ctx context.Context, asked bool) error {
	l.reloads.Lock()
	defer l.reloads.Unlock()
	changed, err := l.take(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // the gateway ends, which is no fault of the file
	}
	failure := l.settle(err)
	now := l.state.Load()
	switch {
	case err != nil && (asked || failure == nil || failure.Err.Error() != err.Error()):
		l.log.Error("the registry file cannot be used; what was served before is still served", "error", err)
	case err == nil && (asked || changed || failure != nil):
		l.log.Info("the registry file is in force", "file", now.snapshot.File, "sha256", now.snapshot.Hash, "changed", changed)
	}
	l.inForce(err == nil)
	return err
}

// settle notes how a reload ended, and returns how the one before it failed.
func (l *live) settle(err error) (before *admin.ReloadFailure) {
	l.switches.Lock()
	defer l.switches.Unlock()
	next := *l.state.Load()
	before, next.failure = next.failure, nil
	if err != nil {
		at := l.clock.Now()
		next.failure = &admin.ReloadFailure{Err: err, At: at, Since: at}
		if before != nil { // no file could be used since the first of them
			next.failure.Since = before.Since
		}
		if before != nil && before.Err.Error() == err.Error() {
			next.failure.At = before.At
		}
	}
	l.state.Store(&next)
	return before
}

// take puts the file in force, unless it is already.
func (l *live) take(ctx context.Context) (changed bool, err error) {
	running := l.state.Load().rules
	// Nothing else that read reads can change while the process runs.
	if sum, err := registry.HashFile(running.snapshot.File); err == nil && sum == running.snapshot.Hash {
		return false, nil
	}
	settings, snapshot, err := l.read()
	if err != nil {
		return false, err
	}
	next, err := newRules(settings, snapshot)
	if err != nil {
		return false, err
	}
	if names := running.settings.OnlyAtStart(settings); len(names) > 0 {
		l.log.Warn("settings changed that only a start reads", "settings", names)
	}
	l.switches.Lock()
	defer l.switches.Unlock()
	if err := l.switchLocked(ctx, next); err != nil {
		return false, err
	}
	if err := l.trust(ctx, next); err != nil { // the file is in force; the next change of the store tries again
		l.log.Warn("what delegations are measured against could not be read; it is as it was", "error", err)
	}
	for _, w := range warnings(snapshot) { // a start says them on standard error
		l.log.Warn("the registry file", "warning", w.Error())
	}
	return true, nil
}

func (l *live) switchLocked(ctx context.Context, next rules) error {
	keys, unfit, err := l.keys(ctx, next)
	if keys != nil && errors.Is(err, store.ErrAway) {
		l.log.Warn("the file is in force with the keys and credentials that the state database had last", "error", err)
		err = nil
	}
	if err := errors.Join(append(unfit, err)...); err != nil {
		return err
	}
	if err := l.gateway.Use(next.settings, next.snapshot, next.effective, next.extra, keys); err != nil {
		return err
	}
	l.state.Store(&state{rules: next, since: l.clock.Now()})
	l.keep(next.labels())
	l.log.Info("limits in force", limitsInForce(newReport(next.snapshot, next.effective, next.settings))...)
	return nil
}

// keys joins the registry's keys with those of the store, and names those of
// the store that r does not allow. Where the store's database is away, those are the keys
// that it had last, beside the error.
func (l *live) keys(ctx context.Context, r rules) (_ *identity.Directory, unfit []error, err error) {
	stored, away := l.store.Keys(ctx)
	if errors.Is(away, store.ErrAway) && l.stored != nil {
		stored = *l.stored // a changed file must not wait for a database
	} else if away != nil {
		return nil, nil, away
	}
	l.stored = &stored
	stored = slices.DeleteFunc(slices.Clone(stored), func(k store.Key) bool {
		if !k.RevokedAt.IsZero() || k.Limits == nil {
			return false
		}
		err := r.effective.CheckKey(&registry.Rate{RPS: k.Limits.RPS, Burst: k.Limits.Burst})
		if err != nil {
			unfit = append(unfit, fmt.Errorf("key %s of the state store: %w", k.ID, err))
		}
		return err != nil
	})
	keys, shadowed := allKeys(r.snapshot.Keys, stored)
	for _, id := range shadowed {
		l.log.Warn("a key of the state store has the id of a key in the registry and is not served", "key", id)
	}
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		return nil, nil, err
	}
	directory.Track(&l.uses)
	if away != nil {
		return directory, unfit, away
	}
	return directory, unfit, l.vault.Reload(ctx)
}

// usesEvery is how often last uses are written down: so much of them is lost when the
// process is killed.
const usesEvery = 10 * time.Second

// keepUses writes down when secrets were used last, every so often until ctx ends. No
// call waits for it.
func (l *live) keepUses(ctx context.Context) {
	ticker := l.clock.NewTicker(usesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
			if err := l.writeUses(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrAway) {
				l.log.Warn("last uses of keys could not be written down; that is tried again", "error", err)
			}
		}
	}
}

func (l *live) writeUses(ctx context.Context) error {
	return l.uses.Keep(func(used map[[32]byte]time.Time) error { return l.store.SecretsUsed(ctx, used) })
}

// watchStore takes over what other processes do to the store, until ctx ends.
func (l *live) watchStore(ctx context.Context) {
	poll := store.DefaultPoll
	if !l.started.DatabaseURL.Empty() {
		poll = statePoll
	}
	l.store.Watch(ctx, l.clock, poll, func(int64) error { return l.refresh(ctx) }, func(err error) {
		if errors.Is(err, store.ErrAway) {
			return // which is told once, not at each look
		}
		l.log.Warn("a change of keys or credentials could not be taken over; the old ones hold", "error", err)
	})
}

// watchFile takes over what becomes of the registry file, until ctx ends.
func (l *live) watchFile(ctx context.Context) {
	path := l.state.Load().snapshot.File
	registry.Watch(ctx, l.clock, path, func() { _ = l.reload(ctx, false) }, func(err error) { // reload says itself what fails
		l.log.Warn("the registry file cannot be watched; it is looked at every 30 s", "error", err)
	})
}

// rules are those in force.
func (l *live) rules() rules {
	return l.state.Load().rules
}

// allowsUnrecorded reports whether calls are served though their receipts cannot
// be written.
func (l *live) allowsUnrecorded() bool {
	return l.state.Load().settings.ReceiptOnFailure == "allow"
}

// config tells what is in force, and what is on disk.
func (l *live) config() admin.Config {
	now := l.state.Load()
	c := admin.Config{
		File: now.snapshot.File, Running: now.snapshot.Hash, Since: now.since, Failure: now.failure,
		Settings: now.settings.InForce(l.started),
	}
	c.OnDisk, c.OnDiskErr = registry.HashFile(c.File)
	return c
}
