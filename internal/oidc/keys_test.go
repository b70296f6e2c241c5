package oidc

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"testing"

	jose "github.com/go-jose/go-jose/v4"
)

// TestShortRSAKeys are no keys to trust, however an issuer publishes them.
func TestShortRSAKeys(t *testing.T) {
	for bits, good := range map[int]bool{1024: false, 2040: false, 2048: true} {
		private, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "k"}}})
		if err != nil {
			t.Fatal(err)
		}
		if keys, err := parseKeys(set); (err == nil) != good || len(keys) > 0 != good {
			t.Errorf("%d bits: %d keys, %v", bits, len(keys), err)
		}
	}
}
