package oidc_test

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"agentgw/internal/oidc/oidctest"
)

// TestWhatIsNoTokenCostsLittle: what can be seen to be none is refused before
// anything of its size is made (CVE-2024-28180, CVE-2025-27144, CVE-2025-30204,
// CVE-2026-34986).
func TestWhatIsNoTokenCostsLittle(t *testing.T) {
	w := newWorld(t, open)
	good := w.idp.Token(noon, "alice", nil)
	part := strings.Split(good, ".")
	encrypted := func(alg string) string {
		return strings.Split(oidctest.NewSigner(t, "x").SignRaw(`{"alg":"`+alg+`","enc":"A128GCM","zip":"DEF","p2c":2147483647,"p2s":"AAAA"}`, "x"), ".")[0] + strings.Repeat(".e30", 4)
	}
	for name, token := range map[string]string{
		"dots":                      strings.Repeat(".", 1<<20),
		"dots within the bound":     strings.Repeat(".", 16<<10),
		"a good one and much more":  good + strings.Repeat("A", 1<<20),
		"encrypted":                 encrypted("RSA-OAEP"),
		"encrypted for a password":  encrypted("PBES2-HS256+A128KW"),
		"encrypted, directly":       encrypted("dir"),
		"crit":                      w.idp.Signer().SignRaw(`{"alg":"ES256","crit":["b64"],"b64":false}`, "x"),
		"keys from elsewhere":       w.idp.Signer().SignRaw(`{"alg":"ES256","jku":"https://evil.example"}`, "x"),
		"a header of many brackets": w.idp.Signer().SignRaw(strings.Repeat("[", 10_000), "x"),
		"a payload of brackets":     part[0] + "." + strings.Split(w.idp.Signer().SignRaw("x", strings.Repeat("[", 10_000)), ".")[1] + "." + part[2],
	} {
		if w.ask(token) == nil {
			t.Errorf("%s is taken", name)
		}
		n := bytesOf(func() { _ = w.ask(token) })
		if n >= 64<<10 {
			t.Errorf("%s: %d bytes are allocated", name, n)
		}
	}
}

// bytesOf is what f allocates, the least of a few times: others allocate beside it.
func bytesOf(f func()) (least uint64) {
	least = math.MaxUint64
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}
