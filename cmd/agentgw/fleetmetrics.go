package main

import "github.com/prometheus/client_golang/prometheus"

// fleetCollector reads how the limits are shared.
type fleetCollector struct{ fleet *fleet }

var (
	sharedDesc   = prometheus.NewDesc("agentgate_limits_shared", "1 while the store decides, 0 until it has first answered and while this replica decides by itself.", nil, nil)
	replicasDesc = prometheus.NewDesc("agentgate_limits_replicas", "Replicas that lived when the store last told.", nil, nil)
	failuresDesc = prometheus.NewDesc("agentgate_limits_store_failures_total", "Decisions that the store did not make, and renewals, releases and refunds that failed, by why.", []string{"reason"}, nil)
	reloadsDesc  = prometheus.NewDesc("agentgate_limits_scripts_loaded_total", "Times that the store had to be given its scripts.", nil, nil)
	aloneDesc    = prometheus.NewDesc("agentgate_limits_alone_total", "Decisions that this replica made by itself, as the store did not, by the policy that held.", []string{"policy"}, nil)
	unaskedDesc  = prometheus.NewDesc("agentgate_rule_unasked_total", "Calls that passed without a rule, as the store did not decide and the rule is open then.", []string{"rule"}, nil)
	untoldDesc   = prometheus.NewDesc("agentgate_limits_untold_total", "What the store was to be told of and never was, as too much waited.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *fleetCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sharedDesc, replicasDesc, failuresDesc, reloadsDesc, aloneDesc, unaskedDesc, untoldDesc} {
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
	alone := c.fleet.limiter.Alone()
	r.counter(aloneDesc, alone.Shares, "local")
	r.counter(aloneDesc, alone.Opens, "open")
	r.counter(aloneDesc, alone.Closes, "closed")
	for rule, n := range alone.Unasked {
		r.counter(unaskedDesc, n, rule)
	}
	r.counter(untoldDesc, c.fleet.store.Dropped())
}
