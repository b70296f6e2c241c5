package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// limiterCollector reads the limiter when Prometheus asks. Named tenants have
// series of their own, since the registry bounds their number; all others are
// counted together under "other".
type limiterCollector struct {
	limiter *ratelimit.Local
	nanos   ratelimit.Clock
	named   map[string]bool // partition keys, such as tenant:acme
}

var (
	inFlightDesc = prometheus.NewDesc("agentgate_inflight", "Calls in flight.", []string{"tenant"}, nil)
	capDesc      = prometheus.NewDesc("agentgate_inflight_limit", "Cap of calls in flight, of named tenants.", []string{"tenant"}, nil)
	tokensDesc   = prometheus.NewDesc("agentgate_bucket_tokens", "Tokens left in the bucket, of named tenants.", []string{"tenant"}, nil)
	entriesDesc  = prometheus.NewDesc("agentgate_limiter_entries", "Entries in a limiter table.", []string{"table"}, nil)
	evictedDesc  = prometheus.NewDesc("agentgate_limiter_evictions_total", "Entries forgotten to make room.", []string{"table"}, nil)
	owingDesc    = prometheus.NewDesc("agentgate_limiter_unexpired_evictions_total", "Entries forgotten while they owed; stays 0.", []string{"table"}, nil)
	leakedDesc   = prometheus.NewDesc("agentgate_limiter_tickets_leaked_total", "Slots lost without a release; stays 0.", nil, nil)
)

func newLimiterCollector(l *ratelimit.Local, nanos ratelimit.Clock, tenants []string) *limiterCollector {
	c := &limiterCollector{limiter: l, nanos: nanos, named: map[string]bool{}}
	for _, t := range tenants {
		c.named[identity.NewTenant(identity.KindTenant, t).String()] = true
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *limiterCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{inFlightDesc, capDesc, tokensDesc, entriesDesc, evictedDesc, owingDesc, leakedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *limiterCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	var others int64
	c.limiter.Each(ratelimit.Registered, ratelimit.KindTenant, c.nanos.Nanos(), func(e ratelimit.Entry) bool {
		if e.Overflow || !c.named[e.Partition] {
			others += e.InFlight
			return true
		}
		gauge(inFlightDesc, e.InFlight, e.Partition)
		gauge(capDesc, e.Cap, e.Partition)
		gauge(tokensDesc, e.Remaining, e.Partition)
		return true
	})
	gauge(inFlightDesc, others, "other")
	st := c.limiter.Stats()
	for _, t := range st.Tables {
		name := t.Table.String()
		gauge(entriesDesc, t.Entries, name)
		counter(evictedDesc, t.Evicted, name)
		counter(owingDesc, t.UnexpiredEvictions, name)
	}
	counter(leakedDesc, st.LeakedTickets)
}
