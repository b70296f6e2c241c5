package oidc

import (
	"encoding/json"
	"os"
	"testing"
)

// TestWycheproof has the signatures of C2SP's Wycheproof checked by the very
// functions that callers' tokens go through: no invalid one is taken. Of the valid
// ones those are refused that a caller's token may not be.
func TestWycheproof(t *testing.T) {
	for file, want := range map[string]counts{
		// Refused though valid: shared secrets, empty payloads, keys of another alg
		// than the token's (RFC 7520's with PS256 or ES521), and two with a character
		// that is none of base64url.
		"json_web_signature_test.json": {tests: 401, taken: 26, refused: 20},
		"json_web_key_test.json":       {tests: 26, taken: 1, refused: 4}, // shared secrets
	} {
		got := wycheproof(t, "testdata/wycheproof/"+file)
		if got != want {
			t.Errorf("%s: %+v, want %+v", file, got, want)
		}
	}
}

type counts struct{ tests, taken, refused int }

func wycheproof(t *testing.T, path string) (n counts) {
	t.Helper()
	var suite struct {
		TestGroups []struct {
			Comment         string
			Public, Private json.RawMessage
			Tests           []struct {
				TcID         int
				Comment, JWS string
				Result       string
			}
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &suite); err != nil {
		t.Fatal(err)
	}
	for _, g := range suite.TestGroups {
		jwks := g.Public
		if jwks == nil {
			jwks = g.Private // of shared secrets, and some sets
		}
		var set struct{ Keys []json.RawMessage }
		if json.Unmarshal(jwks, &set); set.Keys == nil {
			jwks, _ = json.Marshal(map[string]any{"keys": []json.RawMessage{jwks}})
		}
		keys, _ := parseKeys(jwks)
		for _, c := range g.Tests {
			n.tests++
			tok, _, err := shape(c.JWS)
			if err == nil {
				err = tok.signedBy(keys)
			}
			switch {
			case err == nil && c.Result != "valid":
				t.Errorf("%s %d (%s: %s) is taken", path, c.TcID, g.Comment, c.Comment)
			case err == nil:
				n.taken++
			case c.Result == "valid":
				n.refused++
				t.Logf("%d (%s: %s) is valid, and refused: %v", c.TcID, g.Comment, c.Comment, err)
			}
		}
	}
	return n
}
