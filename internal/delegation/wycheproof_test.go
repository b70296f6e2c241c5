package delegation_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/delegation"
)

// vectors reads a file of C2SP/wycheproof (Apache-2.0, testdata/LICENSE.wycheproof).
func vectors(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWycheproofEd25519 goes through the function that verifies every link.
func TestWycheproofEd25519(t *testing.T) {
	var file struct {
		NumberOfTests int
		TestGroups    []struct {
			PublicKey struct{ PK string }
			Tests     []struct {
				TCID             int
				Msg, Sig, Result string
			}
		}
	}
	vectors(t, "ed25519_test.json", &file)
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	valid, invalid := 0, 0
	for _, g := range file.TestGroups {
		for _, c := range g.Tests {
			err := delegation.VerifyPayload(ed25519.PublicKey(unhex(g.PublicKey.PK)), unhex(c.Msg), unhex(c.Sig))
			if (err == nil) != (c.Result == "valid") {
				t.Errorf("case %d is %s: %v", c.TCID, c.Result, err)
			}
			if c.Result == "valid" {
				valid++
			} else {
				invalid++
			}
		}
	}
	if valid+invalid != file.NumberOfTests || valid != 88 || invalid != 63 {
		t.Errorf("%d valid, %d invalid", valid, invalid)
	}
	if delegation.VerifyPayload(nil, nil, nil) == nil || delegation.VerifyPayload(make([]byte, 31), nil, make([]byte, 64)) == nil {
		t.Error("no key, or half of one, verifies something")
	}
}

// TestWycheproofJWS: none of these tokens is a delegation, the valid ones neither: they
// are of other algorithms, and 0 may be taken. Each is sent as a root, as a child, and
// with its own header and payload under a signature of a trusted root.
func TestWycheproofJWS(t *testing.T) {
	for name, want := range map[string]int{"json_web_signature_test.json": 401, "json_web_key_test.json": 26} {
		var file struct {
			TestGroups []struct {
				Tests []struct {
					TCID int
					JWS  json.RawMessage
				}
			}
		}
		vectors(t, name, &file)
		n := 0
		for _, g := range file.TestGroups {
			for _, c := range g.Tests {
				n++
				var text string
				if json.Unmarshal(c.JWS, &text) != nil { // one in the JSON serialisation
					text = string(c.JWS)
				}
				forms := []string{text, chainOf(1, nil)[0] + "," + text}
				if parts := strings.Split(text, "."); len(parts) >= 2 {
					input := parts[0] + "." + parts[1]
					forms = append(forms, input+"."+b64(ed25519.Sign(rootKey, []byte(input))))
				}
				for i, form := range forms {
					if v := verify(form, ask(1+i%2)); v.Holds || v.Reason != delegation.Malformed {
						t.Errorf("%s %d, form %d: %+v", name, c.TCID, i, v)
					}
				}
			}
		}
		if n != want {
			t.Errorf("%s has %d cases, want %d", name, n, want)
		}
	}
}

// TestWhatIsNoDelegationCostsNothing: the largest that a header may be of what has felled
// readers of tokens is refused within 64 KiB of memory.
func TestWhatIsNoDelegationCostsNothing(t *testing.T) {
	deep := jws(`{"typ":"agent-delegation+jwt","alg":"EdDSA","kid":"root-new"}`, strings.Repeat("[", 5000), rootKey)
	jwe := strings.Join([]string{b64([]byte(`{"alg":"PBES2-HS256+A128KW","enc":"A128GCM","p2c":2147483647,"p2s":"AAAA","zip":"DEF"}`)), "AAAA", "AAAA", strings.Repeat("A", 7000), "AAAA"}, ".")
	for name, text := range map[string]string{
		"a megabyte of dots": strings.Repeat(".", 1<<20), "8 KiB of dots": strings.Repeat(".", 8<<10), "commas": strings.Repeat(",", 8<<10), "spaces": strings.Repeat(" ", 8<<10),
		"nesting": deep, "a JWE": jwe, "a long text": strings.Repeat("A", 8<<10), "a megabyte": strings.Repeat("A", 1<<20),
		"three long parts": strings.Repeat("A", 2000) + "." + strings.Repeat("A", 4000) + "." + strings.Repeat("A", 86),
	} {
		b := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range min(b.N, 50) {
				if v := verify(text, ask(1)); v.Holds {
					b.Fatal("it holds")
				}
			}
		})
		if per := b.MemBytes / uint64(min(b.N, 50)); per > 64<<10 {
			t.Errorf("%s: %d bytes", name, per)
		}
	}
}

// BenchmarkVerify is of chains of one to four links, and of one refused early.
func BenchmarkVerify(b *testing.B) {
	for n := 1; n <= 4; n++ {
		text, a := field(chainOf(n, nil)), ask(n)
		b.Run([]string{"1 link", "2 links", "3 links", "4 links"}[n-1], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v := delegation.Verify(text, trust, gatewayURI, noon.Add(time.Minute), a); !v.Holds {
					b.Fatal(v)
				}
			}
		})
	}
	b.Run("no signature holds", func(b *testing.B) {
		text := field(chainOf(4, func(l *link) { l.key = strangerKey }))
		b.ReportAllocs()
		for b.Loop() {
			delegation.Verify(text, trust, gatewayURI, noon, ask(4))
		}
	})
}
