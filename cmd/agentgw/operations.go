package main

import (
	"context"
	"errors"
	"strconv"

	"agentgw/internal/admin"
	"agentgw/internal/explain"
	"agentgw/internal/gateway"
	"agentgw/internal/receiptindex"
	"agentgw/internal/receipts"
)

// operations are what operators may see and do, for package admin.
type operations struct{ *server }

func (o operations) Log() admin.Log { return o.receipts }

func (o operations) Ready() error { return o.ready() }

func (o operations) Recording() error { return o.recording() }

func (o operations) Config() admin.Config { return o.live.config() }

func (o operations) Reload() error {
	if o.live.read == nil {
		return errors.New("this gateway was not started from a file")
	}
	return o.live.reload(o.background, true)
}

func (o operations) Drain() (streams, others int) {
	o.log.Warn("an operator has this gateway drained")
	return o.drain()
}

func (o operations) Receipts(ctx context.Context, q admin.ReceiptQuery) (p admin.ReceiptPage, err error) {
	if what := wrongWhy(q.Code); what != "" {
		return p, admin.WrongParameter{Name: "code", What: what}
	}
	wrongCursor := admin.WrongParameter{Name: "cursor", What: receiptindex.ErrCursor.Error()}
	query := receipts.Query{Tenant: q.Tenant, Key: q.Key, Service: q.Service, Decision: q.Decision, Why: q.Code,
		From: q.From, To: q.To, Oldest: q.Oldest, Limit: q.Limit}
	if o.shipping != nil && (q.Cursor == "" || ofFleet(q.Cursor)) {
		page, err := o.shipping.index.List(ctx, query, q.Cursor)
		switch {
		case errors.Is(err, receiptindex.ErrCursor):
			return p, wrongCursor
		case err == nil:
			p.Of, p.Next = admin.OfFleet, page.Next
			for _, f := range page.Receipts {
				p.Receipts = append(p.Receipts, f.Line)
			}
			return p, nil
		case q.Cursor != "":
			return p, admin.ErrNoFleet
		}
		o.log.Warn("the database does not list receipts; those of this replica are listed", "error", err)
	}
	if o.shipping != nil {
		p.Of = admin.OfReplica
	}
	if q.Cursor != "" {
		if query.Cursor, err = strconv.ParseUint(q.Cursor, 10, 53); err != nil || query.Cursor == 0 {
			return p, wrongCursor
		}
	}
	page, err := o.receipts.List(ctx, query)
	if errors.Is(err, receipts.ErrNoIndex) {
		return p, admin.ErrTryLater
	}
	if err != nil {
		return p, err
	}
	if page.Next > 0 {
		p.Next = strconv.FormatUint(page.Next, 10)
	}
	for _, f := range page.Receipts {
		p.Receipts = append(p.Receipts, f.Line)
	}
	return p, nil
}

func (o operations) Explain(ctx context.Context, q explain.Question) (explain.Answer, error) {
	stored, err := o.store.Keys(ctx)
	if err != nil {
		return explain.Answer{}, ofState(err)
	}
	a, err := o.live.rules().explain(q, stored, o.clock.Now(), gateway.Explainer{
		Vault: o.vault, Levels: o.limiter, Nanos: o.nanos, Running: o.gateway,
	})
	a.LimitsAre = o.limitsAre()
	return a, err
}
