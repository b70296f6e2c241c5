package main

import (
	"agentgw/internal/ratelimit"
	"agentgw/internal/tunnel"
)

// lender has the windows of tunnels be kept where replicas share their limits.
type lender struct{ shared *ratelimit.Shared }

// Lend implements tunnel.Lender.
func (l lender) Lend(caller string, of tunnel.Limit, want int64) (tunnel.Loan, error) {
	loan, err := l.shared.Lend(caller, of.Window, of.Bytes, want, of.Cut)
	return tunnel.Loan(loan), err
}

// Repay implements tunnel.Lender.
func (l lender) Repay(caller string, of tunnel.Limit, loan tunnel.Loan, n int64) {
	l.shared.Repay(caller, of.Window, ratelimit.Loan(loan), n)
}

// Part implements tunnel.Lender.
func (l lender) Part(of tunnel.Limit) tunnel.Limit {
	of.Bytes = l.shared.Part(of.Bytes)
	return of
}
