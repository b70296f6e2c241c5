package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentgw/internal/identity"
)

// Two tenants under the default limits. The quiet one makes half of the calls
// that its limit allows; the noisy one a hundred times as many as its own does,
// either with one key, whose own limit refuses it, or with so many that only the
// tenant's does.
const (
	quietKeys, noisyKeys = 5, 600
	quietRate            = 50 // of 100 a second, and of each key 10 of 20
	byKey, byTenant      = 2_000, 10_000
	keyRate, tenantRate  = 20, 100
	keyBurst, tenantRoom = 40, 200
)

// neighbour is how long the quiet tenant's calls take beside the noisy one,
// against what they take alone: to a service that answers at once, so that a call
// takes little but the gateway, and to one that takes 20 ms over it, as the quickest
// of tools do. The peer's part is the machine's: a process that refuses the same
// flood, by the least code there is, while it relays the quiet tenant's calls.
func (b *bench) neighbour() error {
	gateway, keys, err := b.neighbours()
	if err != nil {
		return err
	}
	defer gateway.stop()
	var refused, flooded int64
	for _, action := range []string{"small", "later"} {
		r, f, err := b.neighbourOf(gateway, keys, action)
		if err != nil {
			return err
		}
		refused, flooded = refused+r, flooded+f
	}
	b.table.bound("calls of quiet tenants refused", "", float64(refused), "", 0)
	b.table.report("of noisy ones'", "", float64(flooded), "")
	return nil
}

// neighbourOf measures one action, and returns how many calls of the quiet tenant
// were refused, and how many of the noisy one.
func (b *bench) neighbourOf(gateway *process, keys []string, action string) (refused, flooded int64, err error) {
	var quiet, noisy []string
	for i, k := range keys {
		act := request("POST /v1/act", k, fmt.Sprintf(`{"service":"tools","action":%q,"params":{"query":"q"}}`, action))
		if i < quietKeys {
			quiet = append(quiet, act)
		} else {
			noisy = append(noisy, act)
		}
	}
	calls := job{Conns: 20, Rate: quietRate, Requests: quiet, Status: 200, Length: 1 << 10}
	relayed := calls
	relayed.Requests = b.posts("/" + action)
	floods := []job{
		{},
		{Conns: 100, Rate: byKey, Requests: noisy[:1], Status: 200, Length: -1, Refused: true},
		{Conns: 400, Rate: byTenant, Requests: noisy, Status: 200, Length: -1, Refused: true},
	}
	seconds := 3 * b.seconds
	var p99 [2][3][]float64
	for range b.rounds {
		for i, flood := range floods {
			r, f, err := beside(gateway, calls, flood, seconds)
			if err != nil {
				return 0, 0, err
			}
			p99[0][i] = append(p99[0][i], ms(r.P99))
			refused += r.Refused
			flooded += f.Refused
			if i > 0 {
				if err := aLimited(f, []float64{0, keyRate, tenantRate}[i], []int64{0, keyBurst, tenantRoom}[i]); err != nil {
					return 0, 0, err
				}
			}
			flood.Requests = b.posts(refusedPath)
			r, _, err = beside(b.peer, relayed, flood, seconds)
			if err != nil {
				return 0, 0, err
			}
			p99[1][i] = append(p99[1][i], ms(r.P99))
		}
	}
	takes := map[string]string{"small": "at once", "later": "in 20 ms"}[action]
	what := fmt.Sprintf("%s, %.0f s, %d calls/s", takes, seconds*float64(b.rounds), quietRate)
	b.table.report("a quiet tenant alone, answered "+what+", p99", "ms", median(p99[0][0]), number(median(p99[1][0]), "ms"))
	for i, name := range []string{"", "a noisy one's key refuses 2,000/s", "a noisy tenant refuses 10,000/s"} {
		if i == 0 {
			continue
		}
		b.table.compare("  beside it "+name+", p99", "ms", p99[0][i], p99[1][i], ratios(p99[0][i], p99[0][0]), 1.2)
		b.table.note("answered %s, beside it %s: the ratio is to the quiet tenant alone; the peer's is %.2f", takes, name, median(ratios(p99[1][i], p99[1][0])))
	}
	return refused, flooded, nil
}

// beside runs calls against p for so many seconds, with a flood from a process of
// its own beside them unless that is nothing.
func beside(p *process, calls, flood job, seconds float64) (r, f result, err error) {
	calls.Seconds, flood.Seconds, flood.Address = seconds, seconds+1, p.Address
	calls.Refused = true // counted, not taken for a fault of the measurement
	if flood.Rate > 0 {
		l, err := startLoad(flood)
		if err != nil {
			return r, f, err
		}
		defer l.stop()
		time.Sleep(500 * time.Millisecond) // under way, and the burst spent
		defer func() {
			if err == nil {
				f, err = l.result()
			}
		}()
	}
	r, _, err = p.under(calls)
	return r, f, err
}

// aLimited holds the flood against its limit: it was refused, and not because it
// was not made.
func aLimited(f result, rate float64, burst int64) error {
	most := burst + int64(rate*(f.Seconds+1))
	if f.Wrong > 0 || f.Cut > 0 || f.Answers-f.Refused > most {
		return fmt.Errorf("of a flood of %d, %d were admitted (%d at most), %d wrong (%s), %d cut", f.Answers, f.Answers-f.Refused, most, f.Wrong, f.First, f.Cut)
	}
	return nil
}

// neighbours starts a gateway of two tenants under the default limits.
func (b *bench) neighbours() (*process, []string, error) {
	file := filepath.Join(b.folder, "neighbours.yaml")
	var text strings.Builder
	fmt.Fprintf(&text, "version: 1\ntenants: {quiet: {}, noisy: {}}\nservices:\n  tools:\n    base_url: http://%s\n    allow_private: true\n"+
		"    actions:\n      small: {method: POST, path: /small, params: {query: string}}\n      later: {method: POST, path: /later, params: {query: string}}\nkeys:\n", b.stub.Address)
	var keys []string
	for i := range quietKeys + noisyKeys {
		tenant := "noisy"
		if i < quietKeys {
			tenant = "quiet"
		}
		key, digest := identity.NewKey()
		keys = append(keys, key.Reveal())
		fmt.Fprintf(&text, "  - {id: key-%d, sha256: \"%x\", services: [tools], users: [\"*\"], tenant: %s}\n", i, digest, tenant)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return nil, nil, err
	}
	p, err := gateway(b.binary, file, filepath.Join(b.folder, "neighbours"))
	return p, keys, err
}
