package gateway

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
	"agentgw/internal/tunnel"
)

// noTime is a clock that stands.
type noTime struct{}

func (noTime) Nanos() int64 { return 0 }

// TestWhatDidNotFlowIsGivenBack: of a piece that was written in part, the part that went out
// is carried and counted against the budget, and no more.
func TestWhatDidNotFlowIsGivenBack(t *testing.T) {
	g := &Gateway{budgets: tunnel.NewBudgets(10, nil), nanos: noTime{}}
	call := &Call{
		account: &account{key: ratelimit.NewRef(ratelimit.Callers, ratelimit.KindKey, "key:k", ratelimit.Limit{})},
		tunnel:  &tunnelled{limit: tunnel.Limit{Bytes: 100, Window: time.Hour, Cut: true}},
	}
	var carried atomic.Int64
	broken := errors.New("broken")
	err := (&flow{g: g, call: call}).pass([]byte("ten bytes."), &carried, func([]byte) (int, error) { return 3, broken })
	if got := g.budget(call); !errors.Is(err, broken) || carried.Load() != 3 || got.Used != 3 || got.Left != 97 {
		t.Errorf("%v, %d carried, %+v", err, carried.Load(), got)
	}
}
