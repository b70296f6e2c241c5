package main

import (
	"context"
	"errors"

	"agentgw/internal/admin"
	"agentgw/internal/explain"
	"agentgw/internal/gateway"
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

func (o operations) Receipts(ctx context.Context, q admin.ReceiptQuery) (admin.ReceiptPage, error) {
	if what := wrongWhy(q.Code); what != "" {
		return admin.ReceiptPage{}, admin.WrongParameter{Name: "code", What: what}
	}
	page, err := o.receipts.List(ctx, receipts.Query{Tenant: q.Tenant, Key: q.Key, Service: q.Service, Decision: q.Decision, Why: q.Code,
		From: q.From, To: q.To, Oldest: q.Oldest, Cursor: q.Cursor, Limit: q.Limit})
	if errors.Is(err, receipts.ErrNoIndex) {
		return admin.ReceiptPage{}, admin.ErrTryLater
	}
	if err != nil {
		return admin.ReceiptPage{}, err
	}
	p := admin.ReceiptPage{Next: page.Next}
	for _, f := range page.Receipts {
		p.Receipts = append(p.Receipts, f.Line)
	}
	return p, nil
}

func (o operations) Explain(ctx context.Context, q explain.Question) (explain.Answer, error) {
	stored, err := o.store.Keys(ctx)
	if err != nil {
		return explain.Answer{}, err
	}
	return o.live.rules().explain(q, stored, o.clock.Now(), gateway.Explainer{
		Vault: o.vault, Levels: o.limiter, Nanos: o.nanos, Running: o.gateway,
	})
}
