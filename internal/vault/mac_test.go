package vault

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"testing"

	"agentgw/internal/receipts"
)

// TestWycheproofMAC runs project Wycheproof's HMAC-SHA-256 vectors (Apache-2.0, see
// testdata/LICENSE.wycheproof) through what makes salts, and what makes the states and
// verifiers of links, and through what judges the hash of a call's parameters. Keys of
// other sizes have no counterpart here. A tag of 128 bits is the first half of what is
// made; what judges takes none of them, the valid ones included.
func TestWycheproofMAC(t *testing.T) {
	var file struct {
		TestGroups []struct {
			KeySize, TagSize int
			Tests            []struct {
				TCID                           int
				Comment, Key, Msg, Tag, Result string
			}
		}
	}
	b, err := os.ReadFile("testdata/hmac_sha256_test.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	type kind struct {
		tagSize int
		result  string
	}
	ran, opened := map[kind]int{}, map[kind]int{}
	for _, g := range file.TestGroups {
		if g.KeySize != 8*kekSize {
			continue
		}
		for _, c := range g.Tests {
			of := kind{g.TagSize, c.Result}
			ran[of]++
			key, message, tag := [kekSize]byte(unhex(t, c.Key)), unhex(t, c.Msg), unhex(t, c.Tag)
			salt := newSaltKey("k", key)
			salt.salt("another receipt") // nothing of which may stay
			made := salt.salt(string(message))
			if bytes.Equal(made[:len(tag)], tag) != (c.Result == "valid") {
				t.Errorf("%d (%s): the salt is %x", c.TCID, c.Comment, made)
			}
			linked, err := base64.RawURLEncoding.DecodeString((&Links{key: key}).hash(message))
			if err != nil || bytes.Equal(linked[:len(tag)], tag) != (c.Result == "valid") {
				t.Errorf("%d (%s): a link's hash is %x, %v", c.TCID, c.Comment, linked, err)
			}
			hash := receipts.ParamsHash{Alg: receipts.ParamsAlg, Hash: base64.RawURLEncoding.EncodeToString(tag)}
			if hash.Opens(key, message) {
				opened[of]++
			}
		}
	}
	// So that a change to the file or to the filter does not empty the test.
	for of, want := range map[kind][2]int{{256, "valid"}: {27, 27}, {256, "invalid"}: {54, 0}, {128, "valid"}: {27, 0}, {128, "invalid"}: {54, 0}} {
		if ran[of] != want[0] || opened[of] != want[1] {
			t.Errorf("of %d %s tags of %d bits %d open parameters, want %d of %d", ran[of], of.result, of.tagSize, opened[of], want[1], want[0])
		}
	}
}
