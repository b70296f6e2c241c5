// Package admin is the operators' side: health and metrics on a listener of
// its own, which agents cannot reach.
//
// /livez says that the process answers, /readyz (and /healthz) that calls can
// be served, /metrics is for Prometheus. None of them wants a token, none shows
// a secret, and the number of series depends on the configuration alone.
package admin

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the gateway's instruments. Safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	decisions *prometheus.CounterVec
	upstream  *prometheus.HistogramVec
	commits   prometheus.Histogram
	records   prometheus.Counter
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
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agentgate_receipt_commit_seconds", Help: "Time to make a batch of receipts durable.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		}),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentgate_receipts_appended_total", Help: "Receipt records made durable.",
		}),
	}
	m.registry.MustRegister(m.decisions, m.upstream, m.commits, m.records, collectors.NewGoCollector(),
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

// Committed counts a batch of receipts that took that many seconds.
func (m *Metrics) Committed(records int, seconds float64) {
	m.records.Add(float64(records))
	m.commits.Observe(seconds)
}

// Collect adds a collector, such as the limiter's.
func (m *Metrics) Collect(c prometheus.Collector) { m.registry.MustRegister(c) }

// Handler serves health and metrics. ready returns nil once calls can be
// served, and why not before and after.
func Handler(m *Metrics, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	readyz := func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /readyz", readyz)
	mux.HandleFunc("GET /healthz", readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}
