package main

import (
	"slices"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/registry"
	"agentgw/internal/store"
)

// TestAClashOfIdsKeepsNobodyAlive: a stored key with a static key's id is left
// out alone, and a revoked key is gone all the same.
func TestAClashOfIdsKeepsNobodyAlive(t *testing.T) {
	digest := func(b byte) [32]byte { return [32]byte{b} }
	keys, shadowed := allKeys(
		[]*registry.Key{{ID: "twin", Digest: digest(1)}},
		[]store.Key{
			{ID: "twin", Digest: digest(2)}, {ID: "copy", Digest: digest(1)},
			{ID: "gone", Digest: digest(3), RevokedAt: time.Unix(1, 0)}, {ID: "live", Digest: digest(4)},
		})
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		t.Fatal(err)
	}
	for b, want := range map[byte]string{1: "twin", 2: "", 3: "", 4: "live"} {
		got := ""
		if s := directory.Find(digest(b), time.Unix(2, 0)); s != nil {
			got = s.Key.ID
		}
		if got != want {
			t.Errorf("digest %d finds key %q, want %q", b, got, want)
		}
	}
	if want := []string{"twin", "copy"}; !slices.Equal(shadowed, want) {
		t.Errorf("shadowed %v, want %v", shadowed, want)
	}
}
