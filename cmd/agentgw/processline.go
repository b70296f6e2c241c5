package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"agentgw/internal/config"
	"agentgw/internal/literal"
)

// processLine is what is nobody's own: the slots of the process, the queue that each
// tenant has for them and for its own, and how long receipts are kept.
type processLine struct {
	MaxInflight       *int   `json:"max_inflight"` // null: no cap
	MaxInflightSource string `json:"max_inflight_source"`
	TenantQueue       int    `json:"tenant_queue"` // 0: nobody waits
	TenantQueueSource string `json:"tenant_queue_source"`
	QueueWait         string `json:"tenant_queue_wait"`
	QueueWaitSource   string `json:"tenant_queue_wait_source"`
	Retention         string `json:"receipt_retention,omitempty"` // absent: for ever
	RetentionSource   string `json:"receipt_retention_source"`
}

func newProcessLine(s *config.Settings) processLine {
	p := processLine{
		MaxInflightSource: sourceOf(s, "AGENTGATE_MAX_INFLIGHT"), TenantQueueSource: sourceOf(s, "AGENTGATE_TENANT_QUEUE"), QueueWaitSource: sourceOf(s, "AGENTGATE_TENANT_QUEUE_WAIT"),
		RetentionSource: sourceOf(s, "AGENTGATE_RECEIPT_RETENTION"),
		TenantQueue:     s.TenantQueue, QueueWait: literal.Span(s.TenantQueueWait),
	}
	if s.MaxInflight > 0 {
		p.MaxInflight = &s.MaxInflight
	}
	if s.ReceiptRetention > 0 {
		p.Retention = literal.Span(s.ReceiptRetention)
	}
	return p
}

// sourceOf is where a setting comes from, the name of its variable included.
func sourceOf(s *config.Settings, variable string) string {
	if from := s.Source(variable); from != "default" {
		return from
	}
	return "default " + variable
}

func (p processLine) queueText() string {
	if p.TenantQueue == 0 {
		return "off"
	}
	return strconv.Itoa(p.TenantQueue)
}

func (p processLine) print(w io.Writer) {
	fmt.Fprintf(w, "\nPROCESS\tVALUE\tFROM\n")
	fmt.Fprintf(w, "in flight\t%s\t%s\n", countText(p.MaxInflight), p.MaxInflightSource)
	fmt.Fprintf(w, "queue of each tenant\t%s\t%s\n", p.queueText(), p.TenantQueueSource)
	fmt.Fprintf(w, "wait at most\t%s\t%s\n", p.QueueWait, p.QueueWaitSource)
	fmt.Fprintf(w, "receipts are kept\t%s\t%s\n", cmp.Or(p.Retention, "for ever"), p.RetentionSource)
}
