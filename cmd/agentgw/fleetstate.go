package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"agentgw/internal/admin"
	"agentgw/internal/store"
)

// statePoll is how often a replica looks for changes in a shared database, in case that
// no push came: what is revoked then is, everywhere, within this and the time to read it.
const statePoll = 2 * time.Second

// stateAway has the log tell when a shared database is away, and when it is back.
func stateAway(log *slog.Logger) func(error) {
	return func(err error) {
		if err != nil {
			log.Warn("calls go on with the keys and credentials that were read last; nothing can be changed", "error", err)
			return
		}
		log.Info("the state database answers again")
	}
}

// statePushed has the log tell when changes are pushed no more, and when they are again.
func statePushed(log *slog.Logger) func(error) {
	return func(err error) {
		if err != nil {
			log.Warn("changes of keys and credentials are not pushed; they are looked for", "every", statePoll.String(), "error", err)
			return
		}
		log.Info("changes of keys and credentials are pushed again")
	}
}

// ofState is an error of the store in words for operators, who can try again where its database
// is away.
func ofState(err error) error {
	if errors.Is(err, store.ErrAway) {
		return fmt.Errorf("%w: %w", err, admin.ErrStateAway)
	}
	return err
}

// stateCollector shows how a shared database is reached.
type stateCollector struct{ store *store.Store }

var (
	stateOKDesc     = prometheus.NewDesc("agentgate_state_ok", "1 while the state database answers, 0 while calls are decided by what was read last.", nil, nil)
	statePushedDesc = prometheus.NewDesc("agentgate_state_pushed", "1 while changes of keys and credentials are pushed, 0 while they are looked for.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	out <- stateOKDesc
	out <- statePushedDesc
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	one := map[bool]int64{true: 1}
	r := readings(out)
	r.gauge(stateOKDesc, one[!c.store.Away()])
	r.gauge(statePushedDesc, one[c.store.Pushes()])
}
