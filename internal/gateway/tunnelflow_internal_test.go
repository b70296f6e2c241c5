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

// flowOf is that of a caller who may have so many bytes, up to where it carries some.
func flowOf(bytes int64) *flow {
	return &flow{
		g: &Gateway{budgets: tunnel.NewBudgets(10, nil), nanos: noTime{}, answers: buffers{size: answerBuffer}},
		call: &Call{
			account: &account{key: ratelimit.NewRef(ratelimit.Callers, ratelimit.KindKey, "key:k", ratelimit.Limit{})},
			tunnel:  &tunnelled{limit: tunnel.Limit{Bytes: bytes, Window: time.Hour, Cut: true}},
		},
		patience: new(patience),
	}
}

// TestWhatDidNotFlowIsGivenBack: of a piece that was written in part, the part that went out
// is carried and counted against the budget, and no more.
func TestWhatDidNotFlowIsGivenBack(t *testing.T) {
	f := flowOf(100)
	var carried atomic.Int64
	broken := errors.New("broken")
	err := f.pass([]byte("ten bytes."), &carried, func([]byte) (int, error) { return 3, broken })
	if got := f.g.budget(f.call); !errors.Is(err, broken) || carried.Load() != 3 || got.Used != 3 || got.Left != 97 {
		t.Errorf("%v, %d carried, %+v", err, carried.Load(), got)
	}
}
