package main

import (
	"fmt"
	"io"
	"strconv"

	"agentgw/internal/config"
	"agentgw/internal/literal"
)

// processLine are the limits that are nobody's own: the slots of the process, and
// the queue that each tenant has for them and for its own.
type processLine struct {
	MaxInflight       *int   `json:"max_inflight"` // null: no cap
	MaxInflightSource string `json:"max_inflight_source"`
	TenantQueue       int    `json:"tenant_queue"` // 0: nobody waits
	TenantQueueSource string `json:"tenant_queue_source"`
	QueueWait         string `json:"tenant_queue_wait"`
	QueueWaitSource   string `json:"tenant_queue_wait_source"`
}

func newProcessLine(s *config.Settings) processLine {
	source := func(variable string) string {
		if from := s.Source(variable); from != "default" {
			return from
		}
		return "default " + variable
	}
	p := processLine{
		MaxInflightSource: source("AGENTGATE_MAX_INFLIGHT"), TenantQueueSource: source("AGENTGATE_TENANT_QUEUE"), QueueWaitSource: source("AGENTGATE_TENANT_QUEUE_WAIT"),
		TenantQueue: s.TenantQueue, QueueWait: literal.Span(s.TenantQueueWait),
	}
	if s.MaxInflight > 0 {
		p.MaxInflight = &s.MaxInflight
	}
	return p
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
}
