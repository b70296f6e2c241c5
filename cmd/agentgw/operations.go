package main

import (
	"context"
	"errors"

	"agentgw/internal/admin"
	"agentgw/internal/explain"
	"agentgw/internal/gateway"
)

// operations are what operators may see and do, for package admin.
type operations struct{ *server }

func (o operations) Log() admin.Log { return o.receipts }

func (o operations) Ready() error { return o.ready() }

func (o operations) Config() admin.Config { return o.live.config() }

func (o operations) Reload() error {
	if o.live.read == nil {
		return errors.New("this gateway was not started from a file")
	}
	return o.live.reload(o.background, true)
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
