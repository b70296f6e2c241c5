package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/explain"
	"agentgw/internal/gateway"
	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
)

// fleet is what this process shares with other replicas: its limits, by a store.
type fleet struct {
	store *redisstore.Store
	clock clockwork.Clock
	log   *slog.Logger
	said  storeLog

	mu      sync.Mutex // held until the fleet is whole: the store may tell of itself at once
	limiter *ratelimit.Shared
}

// newFleet has what local decides be shared. The store need not answer yet.
func newFleet(settings *config.Settings, local *ratelimit.Local, replica string, clock clockwork.Clock, log *slog.Logger) (*fleet, error) {
	f := &fleet{clock: clock, log: log, said: storeLog{log: log, policy: settings.LimitsOnStoreFailure}}
	f.mu.Lock()
	defer f.mu.Unlock()
	store, err := redisstore.Open(redisstore.Options{
		URL: settings.RedisURL.Reveal(), Timeout: settings.RedisTimeout, Clock: clock, Mode: f.changed, Back: f.back,
		Channel: ratelimit.Bell(replica), Heard: f.heard,
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

// changed is told that the store went away, or decides.
func (f *fleet) changed(reason error) {
	f.mu.Lock()
	limiter := f.limiter
	f.mu.Unlock()
	f.said.changed(f.clock.Now(), reason, limiter.Replicas())
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

// heard is told that a call that waits here may have a slot.
func (f *fleet) heard(set string) {
	f.mu.Lock()
	limiter := f.limiter
	f.mu.Unlock()
	limiter.Ring(set)
}

// run keeps the store in step with what runs and waits here, until ctx is done.
func (f *fleet) run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { f.stand(ctx) }) // by itself: to renew slots may take long
	ticker := f.clock.NewTicker(ratelimit.RenewEvery)
	defer ticker.Stop()
	var report storeReport
	for {
		if lost, err := f.limiter.Renew(f.store); err == nil && lost > 0 {
			f.log.Warn("the store had lost slots of calls that run, and has them again", "slots", lost)
		}
		now := f.clock.Now()
		f.said.late(now, f.limiter.Replicas())
		report.tell(f.log, now, f.said.away(), f.store.Failures(), f.limiter.Alone())
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
		}
	}
}

// stand keeps the places of calls that wait.
func (f *fleet) stand(ctx context.Context) {
	ticker := f.clock.NewTicker(ratelimit.StandEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
			f.limiter.Stand()
		}
	}
}

// close gives everything back: all calls are over.
func (f *fleet) close() {
	f.limiter.Leave()
	f.store.Close()
}

// limitsAre is whose the limits are now.
func (s *server) limitsAre() string {
	if s.fleet != nil {
		if s.fleet.store.Begun(); s.fleet.store.Away() {
			return explain.Alone
		}
	}
	return gateway.LimitsAre(s.settings)
}
