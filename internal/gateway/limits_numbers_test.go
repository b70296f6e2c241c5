package gateway_test

import (
	"errors"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/gateway"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
)

var scalar = regexp.MustCompile(`^([-+]?[.\w]+|'[-+.\w]*')?$`)

// FuzzLimitNumbers: whatever stands in the file as a rate and a burst, of a tenant,
// a key or a service, is a mistake that names the place, or a limit that the
// gateway takes: no faster than the rate that is written, and none at all only
// where a 0 is written. Nothing panics.
func FuzzLimitNumbers(f *testing.F) {
	for _, rps := range []string{"20", "0", "-0", "0.0", "-1", "NaN", ".nan", "Inf", "-.inf", "1e308", "1e12", "1000000000", "1000000001", "0.0000000001", "1e-400", "0x10", "1_000", "", "null", "'5'", "5s", "0.1"} {
		for _, burst := range []string{"40", "0", "-1", "1099511627776", "9223372036854775808", "1.5", "1e3", "NaN", ""} {
			f.Add(rps, burst)
		}
	}
	f.Fuzz(func(t *testing.T, rps, burst string) {
		if !scalar.MatchString(rps) || !scalar.MatchString(burst) {
			return // of another shape, which FuzzParse looks after
		}
		limit := "{rps: " + rps + ", burst: " + burst + "}"
		for place, member := range map[string]string{
			"tenants.t":             "tenants: {t: " + limit + "}\n",
			"keys[0].limits":        "keys: [{id: k, sha256: \"" + strings.Repeat("0", 64) + "\", services: [\"*\"], users: [\"*\"], limits: " + limit + "}]\n",
			"services.s.rate_limit": "services: {s: {base_url: \"https://s.example\", rate_limit: " + limit + ", actions: {get: {method: GET, path: /}}}}\n",
		} {
			snapshot, err := registry.Parse("f", []byte("version: 1\n"+member))
			var effective *registry.Effective
			if err == nil {
				effective, err = snapshot.Effective(registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200})
			}
			if err != nil {
				var problems registry.Problems
				if !errors.As(err, &problems) || problems[0].Line != 2 || !strings.HasPrefix(problems[0].Path, place) {
					t.Fatalf("%s in %s: %v", limit, place, err)
				}
				continue
			}
			var l registry.Limits
			switch place {
			case "tenants.t":
				l = effective.Tenant("t")
			case "keys[0].limits":
				l = effective.Key(snapshot.Keys[0].Rate)
			default:
				l = effective.Service("s")
			}
			asked, errRate := strconv.ParseFloat(strings.Trim(strings.TrimSpace(rps), "'"), 64)
			if errRate != nil || math.IsNaN(asked) || math.IsInf(asked, 0) || asked < 0 {
				t.Fatalf("%s in %s is taken for %+v", limit, place, l)
			}
			if off := l.RPS == 0 || l.Burst == 0; off && asked != 0 && strings.Trim(strings.TrimSpace(burst), "+-0") != "" {
				t.Fatalf("%s in %s limits nothing", limit, place)
			}
			if l.RPS > asked {
				t.Fatalf("%s in %s is faster than written: %v", limit, place, l.RPS)
			}
			if err := accepts(snapshot, effective); err != nil {
				t.Fatalf("%s in %s is good for the file, and not for the gateway: %v", limit, place, err)
			}
		}
	})
}

// accepts has a gateway take a registry.
func accepts(snapshot *registry.Snapshot, effective *registry.Effective) error {
	keys := make([]*identity.Key, 0, len(snapshot.Keys))
	for _, k := range snapshot.Keys {
		made := &identity.Key{ID: k.ID, Digest: k.Digest, Services: k.Services, Users: k.Users}
		if k.Rate != nil {
			made.Limits = &identity.Limits{RPS: k.Rate.RPS, Burst: k.Rate.Burst}
		}
		keys = append(keys, made)
	}
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		return err
	}
	clock := clockwork.NewFakeClock()
	g := gateway.New(gateway.Parts{
		Limiter: ratelimit.NewLocal(ratelimit.Options{}), Nanos: ratelimit.NewClock(clock), Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
	return g.Use(&config.Settings{KeyMaxPrincipals: 64, RateAuthPerMinute: 60}, snapshot, effective, nil, directory)
}
