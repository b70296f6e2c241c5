package identity_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

// naughty are texts that programs have choked on, and those of SQL injections.
func naughty(t *testing.T) []string {
	t.Helper()
	file, err := os.ReadFile("testdata/blns/blns.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	if err := json.Unmarshal(file, &list); err != nil || len(list) < 400 {
		t.Fatalf("%d strings, %v", len(list), err)
	}
	return append(list, "' OR '1'='1", "'; DROP TABLE keys;--", "agw_' OR digest IS NOT NULL--", "\" OR \"\"=\"", "1; UPDATE keys SET revoked_at=0", "x' UNION SELECT digest FROM keys--", "%27%20OR%201=1")
}

// TestNaughtyStringsAreNobody, as a key, beside the scheme, or in the place of a part
// of a key that is good.
func TestNaughtyStringsAreNobody(t *testing.T) {
	d, text := callers(t)
	good := text["one"]
	for _, s := range naughty(t) {
		for _, h := range []http.Header{
			{"Authorization": {s}}, {"Authorization": {"Bearer " + s}}, {"X-Api-Key": {s}}, {"Agentgate-Key": {s}},
			{"Authorization": {"Bearer " + good + s}}, {"X-Api-Key": {"agw_" + s + good[4:]}},
		} {
			secret, err := d.Authenticate(h, noon)
			if err == identity.ErrUnauthenticated {
				continue
			}
			// White space around a value is not part of it.
			if err != nil || secret.Key.ID != "one" || strings.Trim(s, " \t") != "" {
				t.Errorf("%q: %v", h, err)
			}
		}
	}
}

// TestAWrongChecksumLooksNothingUp: a text that is no key is not even searched for, so
// that a stranger's guesses cost a checksum each.
func TestAWrongChecksumLooksNothingUp(t *testing.T) {
	_, text := callers(t)
	key := []byte(text["one"])
	for i := 4; i < len(key); i++ {
		was := key[i]
		if key[i] = 'a'; was == 'a' {
			key[i] = 'b'
		}
		if digest, ok := identity.ParseKey(string(key)); ok || digest != ([32]byte{}) {
			t.Errorf("a key with another letter at %d has the digest %x", i, digest)
		}
		key[i] = was
	}
}
