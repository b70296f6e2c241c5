package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/limitertest"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// servedBy is a Cluster whose nodes' clocks can be set, for scripts.
type servedBy struct {
	*redistest.Cluster
	clocks []string // a key of each node
}

func newServedBy(c *redistest.Cluster) *servedBy {
	s := &servedBy{Cluster: c}
	for i, names := 0, redisstore.ClockNames(); i < len(c.Nodes); i++ {
		for _, name := range names {
			if c.Of(name) == c.Nodes[i] {
				s.clocks = append(s.clocks, name)
			}
		}
	}
	return s
}

func (s *servedBy) FlushAll() {
	for _, n := range s.Nodes {
		n.Do("FLUSHALL")
	}
}
func (s *servedBy) FastForward(time.Duration) {} // keys are kept
func (s *servedBy) SetTime(to time.Time) {
	for i, n := range s.Nodes {
		n.Do("SET", s.clocks[i], strconv.FormatInt(to.UnixMicro(), 10))
	}
}

// TestContractOnACluster: what replicas share decides as the limiter of one process does,
// on three real servers that have a third of the keys each.
func TestContractOnACluster(t *testing.T) {
	cluster := newServedBy(redistest.StartCluster(t))
	clock := clockwork.NewFakeClock()
	store := open(t, cluster.URL(), clock)
	store.TestingOnlyClock()
	cluster.SetTime(time.Unix(0, 0))
	eventually(t, "the store decides", func() bool {
		_, err := store.Ask(ratelimit.Probe())
		return err == nil
	})
	limitertest.RunOf(t, 50, func(tb limitertest.TB) limitertest.Subject { return subject(tb, cluster, clock, store, true) })
}
