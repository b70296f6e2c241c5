package main

import "github.com/prometheus/client_golang/prometheus"

// fleetCollector reads how the limits are shared.
type fleetCollector struct{ fleet *fleet }

var (
	sharedDesc   = prometheus.NewDesc("agentgate_limits_shared", "1 while the store decides, 0 while this replica does by itself.", nil, nil)
	replicasDesc = prometheus.NewDesc("agentgate_limits_replicas", "Replicas that lived when the store last told.", nil, nil)
	failuresDesc = prometheus.NewDesc("agentgate_limits_store_failures_total", "Decisions that the store did not make, by why.", []string{"reason"}, nil)
	reloadsDesc  = prometheus.NewDesc("agentgate_limits_scripts_loaded_total", "Times that the store had to be given its scripts.", nil, nil)
	untoldDesc   = prometheus.NewDesc("agentgate_limits_untold_total", "What the store was to be told of and never was, as too much waited.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *fleetCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sharedDesc, replicasDesc, failuresDesc, reloadsDesc, untoldDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *fleetCollector) Collect(out chan<- prometheus.Metric) {
	shared := int64(1)
	if c.fleet.store.Away() {
		shared = 0
	}
	r := readings(out)
	r.gauge(sharedDesc, shared)
	r.gauge(replicasDesc, c.fleet.limiter.Replicas())
	for reason, n := range c.fleet.store.Failures() {
		r.counter(failuresDesc, n, string(reason))
	}
	r.counter(reloadsDesc, c.fleet.store.Reloads())
	r.counter(untoldDesc, c.fleet.store.Dropped())
}
