package gateway

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// BenchmarkIdentify is step 1 of a call with a key, among 10,000 keys.
func BenchmarkIdentify(b *testing.B) {
	text, digest := identity.NewKey()
	keys := []*identity.Key{{ID: "k", Digest: digest, Services: []string{"*"}, Users: []string{"*"}}}
	for i := range 10_000 {
		keys = append(keys, &identity.Key{ID: string(rune('a'+i%26)) + netip.AddrFrom4([4]byte{1, 2, byte(i >> 8), byte(i)}).String(), Digest: [32]byte{1, byte(i), byte(i >> 8)}})
	}
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		b.Fatal(err)
	}
	var uses identity.Uses
	directory.Track(&uses)
	snapshot := &registry.Snapshot{}
	effective, err := snapshot.Effective(registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200, TenantMaxInflight: 32})
	if err != nil {
		b.Fatal(err)
	}
	set, err := rules.Compile(snapshot)
	if err != nil {
		b.Fatal(err)
	}
	v, err := newView(&config.Settings{RateAuthPerMinute: 60, KeyMaxPrincipals: 64}, snapshot, effective, set, directory)
	if err != nil {
		b.Fatal(err)
	}
	g := &Gateway{clock: clockwork.NewRealClock()}
	call := &Call{In: &http.Request{Header: http.Header{"Authorization": {"Bearer " + text.Reveal()}}}, view: v}
	at := new(attempt)
	b.ReportAllocs()
	for b.Loop() {
		if err := g.identify(call, at); err != nil {
			b.Fatal(err)
		}
	}
}
