package admin

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the gateway's instruments. Safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	decisions *prometheus.CounterVec
	upstream  *prometheus.HistogramVec
	waits     *prometheus.HistogramVec
	commits   prometheus.Histogram
	records   prometheus.Counter
	lost      prometheus.Counter
	observed  *prometheus.CounterVec
	inForce   prometheus.Gauge
	anchored  *prometheus.GaugeVec

	labelled *prometheus.Registry // those whose labels the registry file names
}

// NewMetrics returns instruments in a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentgate_decisions_total", Help: "Calls decided, by service, code (ok for an admitted call) and the limit that decided.",
		}, []string{"service", "code", "limit"}),
		upstream: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentgate_upstream_seconds", Help: "Time from the call of a service to the header of its answer; not how long the answer lasts, which of a stream says nothing.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 2, 17),
		}, []string{"service"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentgate_queue_seconds", Help: "Time that calls waited for a slot, by how it ended: served, refused (nobody waits longer) or left (hung up, key gone, blocked, draining).",
			Buckets: prometheus.ExponentialBuckets(1e-3, 2, 15),
		}, []string{"end"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agentgate_receipt_commit_seconds", Help: "Time to make a batch of receipts durable.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		}),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentgate_receipts_appended_total", Help: "Receipt records made durable.",
		}),
		observed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentgate_rule_observed_total", Help: "Calls that ran and that a rule with mode: observe would have refused.",
		}, []string{"rule"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentgate_receipts_lost_total", Help: "Attempts of which a receipt record could not be written; they were refused, or let through where AGENTGATE_RECEIPT_ON_FAILURE is allow.",
		}),
		inForce: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "agentgate_registry_reload_ok", Help: "1 while the registry file, as it was last read, is in force; 0 after a reload that failed.",
		}),
	}
	m.anchored = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentgate_receipt_anchor_ok", Help: "1 while the file of AGENTGATE_RECEIPT_ANCHOR can be read and written and is of this log; absent without that setting.",
	}, nil)
	for _, end := range []string{"served", "refused", "left"} {
		m.waits.WithLabelValues(end)
	}
	m.inForce.Set(1)
	m.labelled = prometheus.NewRegistry()
	m.labelled.MustRegister(m.decisions, m.upstream, m.observed)
	m.registry.MustRegister(m.decisions, m.upstream, m.waits, m.commits, m.records, m.lost, m.observed, m.inForce, m.anchored, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Decided counts one call. The service is one of the registry's, or "".
func (m *Metrics) Decided(service, code, limit string) {
	if code == "" {
		code = "ok"
	}
	m.decisions.WithLabelValues(service, code, limit).Inc()
}

// Answered counts a call of a service, which is one of the registry's, that took
// that many seconds to the header of its answer.
func (m *Metrics) Answered(service string, seconds float64) {
	m.upstream.WithLabelValues(service).Observe(seconds)
}

// Waited counts a wait for a slot of that many seconds, by how it ended.
func (m *Metrics) Waited(end string, seconds float64) {
	m.waits.WithLabelValues(end).Observe(seconds)
}

// Committed counts a batch of receipts that took that many seconds.
func (m *Metrics) Committed(records int, seconds float64) {
	m.records.Add(float64(records))
	m.commits.Observe(seconds)
}

// Unrecorded counts an attempt of which a record could not be written.
func (m *Metrics) Unrecorded() { m.lost.Inc() }

// Observed counts a call that a rule, which only observes, would have refused.
func (m *Metrics) Observed(rule string) { m.observed.WithLabelValues(rule).Inc() }

// Keep forgets the series of services, limits and rules that are not among these,
// so that a file that changes a thousand times leaves no more of them than its last
// state has. What a call of a service that is gone counts when it ends goes with the
// next change.
func (m *Metrics) Keep(services, limits map[string]bool) {
	known := map[string]map[string]bool{"service": services, "limit": limits, "rule": limits}
	families, _ := m.labelled.Gather() // of its own instruments: it cannot fail
	for _, family := range families {
		for _, series := range family.GetMetric() {
			for _, l := range series.GetLabel() {
				name, value := l.GetName(), l.GetValue()
				if names := known[name]; names == nil || value == "" || names[value] {
					continue
				}
				gone := prometheus.Labels{name: value}
				m.decisions.DeletePartialMatch(gone)
				m.upstream.DeletePartialMatch(gone)
				m.observed.DeletePartialMatch(gone)
			}
		}
	}
}

// RegistryInForce says whether the last reload succeeded.
func (m *Metrics) RegistryInForce(ok bool) {
	m.inForce.Set(0)
	if ok {
		m.inForce.Set(1)
	}
}

// Anchored says whether the last look at the anchor found it in good order.
func (m *Metrics) Anchored(ok bool) {
	value := 0.0
	if ok {
		value = 1
	}
	m.anchored.WithLabelValues().Set(value)
}

// Collect adds a collector, such as the limiter's.
func (m *Metrics) Collect(c prometheus.Collector) { m.registry.MustRegister(c) }
