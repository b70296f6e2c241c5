package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
)

// fleet is what this process shares with other replicas: its limits, by a store.
type fleet struct {
	store   *redisstore.Store
	limiter *ratelimit.Shared
	clock   clockwork.Clock
	log     *slog.Logger
	policy  string

	mu     sync.Mutex
	away   bool
	told   time.Time // of a change, in the log
	untold int       // changes since
}

// toldEvery bounds how often the log tells of a store that comes and goes.
const toldEvery = 10 * time.Second

// newFleet has what local decides be shared. The store need not answer yet.
func newFleet(settings *config.Settings, local *ratelimit.Local, replica string, clock clockwork.Clock, log *slog.Logger) (*fleet, error) {
	f := &fleet{clock: clock, log: log, policy: settings.LimitsOnStoreFailure}
	f.mu.Lock() // until it is whole: the store may tell of itself at once
	defer f.mu.Unlock()
	store, err := redisstore.Open(redisstore.Options{
		URL: settings.RedisURL.Reveal(), Timeout: settings.RedisTimeout, Clock: clock, Mode: f.changed, Back: f.back,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settings.Place("AGENTGATE_REDIS_URL"), err)
	}
	f.store = store
	f.limiter = ratelimit.NewShared(local, store, ratelimit.SharedOptions{
		Replica: replica, Away: ratelimit.PolicyOf(settings.LimitsOnStoreFailure), Divided: store.Divided(),
	})
	return f, nil
}

// changed is told that the store went away, or is back.
func (f *fleet) changed(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = reason != nil
	if now := f.clock.Now(); now.Sub(f.told) < toldEvery {
		f.untold++ // what it has come to is told with the next renewal
	} else {
		f.tellLocked(now, reason)
	}
}

func (f *fleet) tellLocked(now time.Time, reason error) {
	f.told, f.untold = now, 0
	if reason != nil {
		f.log.Warn("the limits are not shared: the store does not decide", "reason", reason, "meanwhile", f.policy, "replicas", f.limiter.Replicas())
		return
	}
	f.log.Info("the limits are shared again", "replicas", f.limiter.Replicas())
}

// tellLate tells of changes that came too soon after another.
func (f *fleet) tellLate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if f.untold == 0 || now.Sub(f.told) < toldEvery {
		return
	}
	var reason error
	if f.away {
		reason = fmt.Errorf("it went away and came back: %d changes in a short time", f.untold)
	}
	f.tellLocked(now, reason)
}

// back tells a store that is back of the calls that run, before anybody is decided by
// it.
func (f *fleet) back(by ratelimit.Store) error {
	f.mu.Lock()
	limiter := f.limiter
	f.mu.Unlock()
	_, err := limiter.Renew(by)
	return err
}

// run keeps the store in step with what runs here, until ctx is done.
func (f *fleet) run(ctx context.Context) {
	ticker := f.clock.NewTicker(ratelimit.RenewEvery)
	defer ticker.Stop()
	for {
		if lost, err := f.limiter.Renew(f.store); err == nil && lost > 0 {
			f.log.Warn("the store had lost slots of calls that run, and has them again", "slots", lost)
		}
		f.tellLate()
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
		}
	}
}

// close gives everything back: all calls are over.
func (f *fleet) close() {
	f.limiter.Leave()
	f.store.Close()
}
