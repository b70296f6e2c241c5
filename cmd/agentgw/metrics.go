package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
)

// limiterCollector reads the limiter when Prometheus asks, which costs no caller
// anything. Named tenants have series of their own, since the registry bounds
// their number, as it does that of services; all other tenants are counted
// together under "other", and buckets by how full they are.
type limiterCollector struct {
	limiter *ratelimit.Local
	nanos   ratelimit.Clock
	tenants func() map[string]*ratelimit.Ref // those that the registry names now, by partition key
	rules   func() rules                     // those in force
}

// labels are the services and the limits that metrics may name under these rules.
func (r rules) labels() (services, limits map[string]bool) {
	services, limits = map[string]bool{}, map[string]bool{}
	for name := range r.snapshot.Services {
		services[name] = true
	}
	if r.snapshot.Tunnels != nil {
		services[registry.TunnelService] = true
	}
	for k := range ratelimit.Kinds() {
		limits[k.String()] = true
	}
	for _, rule := range r.extra.Rules() {
		limits[rule.Name] = true
	}
	return services, limits
}

var (
	waitingDesc  = prometheus.NewDesc("agentgate_queue_waiting", "Calls that wait for a slot.", []string{"tenant"}, nil)
	inFlightDesc = prometheus.NewDesc("agentgate_inflight", "Calls in flight.", []string{"tenant"}, nil)
	capDesc      = prometheus.NewDesc("agentgate_inflight_limit", "Cap of calls in flight, of named tenants; 0 is none.", []string{"tenant"}, nil)
	tokensDesc   = prometheus.NewDesc("agentgate_bucket_tokens", "Tokens left in the bucket, of named tenants.", []string{"tenant"}, nil)
	bucketsDesc  = prometheus.NewDesc("agentgate_buckets", "Live buckets by limit and level: empty, low (less than half is left) or high.", []string{"limit", "level"}, nil)

	serviceInFlightDesc = prometheus.NewDesc("agentgate_service_inflight", "Calls of a service in flight.", []string{"service"}, nil)
	serviceCapDesc      = prometheus.NewDesc("agentgate_service_inflight_limit", "Cap of a service's calls in flight; 0 is none.", []string{"service"}, nil)
	processInFlightDesc = prometheus.NewDesc("agentgate_process_inflight", "Calls of the whole process in flight.", nil, nil)
	processCapDesc      = prometheus.NewDesc("agentgate_process_inflight_limit", "Cap of the process's calls in flight; 0 is none.", nil, nil)

	entriesDesc        = prometheus.NewDesc("agentgate_limiter_entries", "Entries in a limiter table.", []string{"table"}, nil)
	sizeDesc           = prometheus.NewDesc("agentgate_limiter_table_size", "Entries that a limiter table keeps besides the pinned.", []string{"table"}, nil)
	pinnedDesc         = prometheus.NewDesc("agentgate_limiter_pinned", "Entries with calls in flight.", []string{"table"}, nil)
	evictedDesc        = prometheus.NewDesc("agentgate_limiter_evictions_total", "Entries forgotten to make room.", []string{"table"}, nil)
	sweptDesc          = prometheus.NewDesc("agentgate_limiter_swept_total", "Entries forgotten after idling.", []string{"table"}, nil)
	overflowedDesc     = prometheus.NewDesc("agentgate_limiter_overflowed_total", "Decisions by a shared entry, as the table was full and nothing could go.", []string{"table"}, nil)
	owingDesc          = prometheus.NewDesc("agentgate_limiter_unexpired_evictions_total", "Entries forgotten while they owed; stays 0.", []string{"table"}, nil)
	ruleEntriesDesc    = prometheus.NewDesc("agentgate_rule_entries", "Partition keys that a rule has counted for in its window.", []string{"rule"}, nil)
	ruleOverflowedDesc = prometheus.NewDesc("agentgate_rule_overflowed_total", "Counts of a rule that were added to a shared one, as there was no room for more partition keys.", []string{"rule"}, nil)
	leakedDesc         = prometheus.NewDesc("agentgate_limiter_tickets_leaked_total", "Slots lost without a release; stays 0.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *limiterCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		waitingDesc, inFlightDesc, capDesc, tokensDesc, bucketsDesc,
		serviceInFlightDesc, serviceCapDesc, processInFlightDesc, processCapDesc,
		entriesDesc, sizeDesc, pinnedDesc, evictedDesc, sweptDesc, overflowedDesc, owingDesc,
		ruleEntriesDesc, ruleOverflowedDesc, leakedDesc,
	} {
		out <- d
	}
}

// readings is where one scrape puts what it reads.
type readings chan<- prometheus.Metric

func (r readings) gauge(d *prometheus.Desc, v int64, labels ...string) {
	r <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
}

func (r readings) counter(d *prometheus.Desc, v int64, labels ...string) {
	r <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// Collect implements prometheus.Collector.
func (c *limiterCollector) Collect(out chan<- prometheus.Metric) {
	st := c.limiter.Stats()
	c.inFlight(out, st.Waiting)
	c.buckets(out)
	services, limits := c.rules().labels()
	for _, s := range st.Services {
		if !services[s.Name] && s.InFlight == 0 { // it is gone, and its last call with it
			continue
		}
		readings(out).gauge(serviceInFlightDesc, s.InFlight, s.Name)
		readings(out).gauge(serviceCapDesc, s.Cap, s.Name)
	}
	readings(out).gauge(processInFlightDesc, st.Process.InFlight)
	readings(out).gauge(processCapDesc, st.Process.Cap)
	tables(out, st)
	for _, r := range st.Rules {
		if !limits[r.Name] {
			continue
		}
		readings(out).gauge(ruleEntriesDesc, r.Entries, r.Name)
		readings(out).counter(ruleOverflowedDesc, r.Overflowed, r.Name)
	}
	readings(out).counter(leakedDesc, st.LeakedTickets)
}

// inFlight shows each named tenant, whether it has called or not, under the limits
// in force, and the sum of all others, which of calls that wait is what is left of all.
func (c *limiterCollector) inFlight(out readings, waiting int64) {
	now, named := c.nanos.Nanos(), c.tenants()
	var others int64
	for name, ref := range named {
		e := c.limiter.Look(ref, now)
		if e.Overflow {
			others -= e.InFlight // which the entry that it shares has as well
		}
		out.gauge(inFlightDesc, e.InFlight, name)
		out.gauge(waitingDesc, e.Waiting, name)
		waiting -= e.Waiting
		out.gauge(capDesc, e.Cap, name)
		if !e.Limit.Unlimited() {
			out.gauge(tokensDesc, e.Remaining, name)
		}
	}
	for _, table := range []ratelimit.Table{ratelimit.Registered, ratelimit.Callers} {
		c.limiter.Each(table, ratelimit.KindTenant, now, func(e ratelimit.Entry) bool {
			if named[e.Partition] == nil {
				others += e.InFlight
			}
			return true
		})
	}
	out.gauge(inFlightDesc, max(0, others), "other") // not all of one instant
	out.gauge(waitingDesc, max(0, waiting), "other")
}

// buckets counts the live buckets of each limit by their level.
func (c *limiterCollector) buckets(out readings) {
	now := c.nanos.Nanos()
	callers := []ratelimit.Table{ratelimit.Registered, ratelimit.Callers}
	open := []ratelimit.Table{ratelimit.Callers, ratelimit.OpenCallers}
	for _, k := range []struct {
		tables []ratelimit.Table
		kind   ratelimit.Kind
	}{
		{callers, ratelimit.KindKey},
		{open, ratelimit.KindCaller},
		{callers, ratelimit.KindTenant},
		{append(open, ratelimit.Registered), ratelimit.KindService},
		{[]ratelimit.Table{ratelimit.Addresses}, ratelimit.KindAddress},
	} {
		var empty, low, high int64
		count := func(e ratelimit.Entry) bool {
			switch {
			case e.Limit.Unlimited(): // slots alone
			case e.Remaining == 0:
				empty++
			case 2*e.Remaining < e.Limit.Burst:
				low++
			default:
				high++
			}
			return true
		}
		for _, table := range k.tables {
			c.limiter.Each(table, k.kind, now, count)
		}
		out.gauge(bucketsDesc, empty, k.kind.String(), "empty")
		out.gauge(bucketsDesc, low, k.kind.String(), "low")
		out.gauge(bucketsDesc, high, k.kind.String(), "high")
	}
}

func tables(out readings, st ratelimit.Stats) {
	for _, t := range st.Tables {
		name := t.Table.String()
		out.gauge(entriesDesc, t.Entries, name)
		out.gauge(sizeDesc, t.Size, name)
		out.gauge(pinnedDesc, t.Pinned, name)
		out.counter(evictedDesc, t.Evicted, name)
		out.counter(sweptDesc, t.Swept, name)
		out.counter(overflowedDesc, t.Overflowed, name)
		out.counter(owingDesc, t.UnexpiredEvictions, name)
	}
}
