package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"agentgw/internal/receipts"
)

// receiptsCollector shows how the receipt log stands with its disk. It asks what
// the log knows, and never the disk, which may not answer.
type receiptsCollector struct {
	log       *receipts.Log
	recording func() error
}

var (
	takenDesc = prometheus.NewDesc("agentgate_receipts_ok", "1 while receipts are taken; 0 while the disk is full, does not answer or has failed, or no key can be kept for the parameters of a new tenant.", nil, nil)
	gapsDesc  = prometheus.NewDesc("agentgate_receipt_gap_attempts_total", "Attempts that were answered without a receipt, since AGENTGATE_RECEIPT_ON_FAILURE is allow.", nil, nil)
	freeDesc  = prometheus.NewDesc("agentgate_receipt_disk_free_bytes", "Free space of the disk of the receipt log; absent where the system does not say.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *receiptsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{takenDesc, gapsDesc, freeDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *receiptsCollector) Collect(out chan<- prometheus.Metric) {
	taken := int64(0)
	if c.recording() == nil {
		taken = 1
	}
	st := c.log.Stats()
	readings(out).gauge(takenDesc, taken)
	readings(out).counter(gapsDesc, int64(st.Missed))
	if st.Free >= 0 {
		readings(out).gauge(freeDesc, st.Free)
	}
}
