package delegation_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// narrow hands the last link of chain on to agent for ten minutes, signed with the key
// that it names in cnf. A claim that is left as it was grants what it did.
func narrow(chain, agent string, key ed25519.PrivateKey, now time.Time) (string, error) {
	chain = strings.TrimSpace(chain) // a file ends with a line end
	parent := strings.TrimSpace(chain[strings.LastIndexByte(chain, ',')+1:])
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(parent, ".")[1])
	if err != nil {
		return "", err
	}
	var claims map[string]any
	numbers := json.NewDecoder(bytes.NewReader(payload))
	numbers.UseNumber()
	if err := numbers.Decode(&claims); err != nil {
		return "", err
	}
	until, _ := claims["exp"].(json.Number).Int64()
	depth, _ := claims["del_depth"].(json.Number).Int64()
	sum := sha256.Sum256([]byte(parent))
	claims["act"] = map[string]string{"sub": "agent:" + agent}
	claims["par"] = base64.RawURLEncoding.EncodeToString(sum[:])
	claims["jti"] = rand.Text()
	claims["iat"] = now.Unix()
	claims["exp"] = min(until, now.Unix()+600)
	claims["del_depth"] = depth - 1
	delete(claims, "cnf") // the new agent may not hand it on

	public := key.Public().(ed25519.PublicKey)
	header, err := json.Marshal(map[string]any{"typ": "agent-delegation+jwt", "alg": "EdDSA",
		"jwk": map[string]string{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(public)}})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	input := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(body)
	return chain + "," + input + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(input))), nil
}

// TestTheExamplesOfThePage: they stand in docs/delegation.md as they are run here and by
// make interop.
func TestTheExamplesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/delegation.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"narrow.go": "narrow_example_test.go", "narrow.mjs": "../../interop/narrow.mjs"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, example, found := strings.Cut(string(page), "<!-- example: "+name+" -->\n")
		_, example, fenced := strings.Cut(example, "\n")
		example, _, ended := strings.Cut(example, "```")
		if !found || !fenced || !ended || !strings.Contains(string(source), example) || len(example) < 500 {
			t.Errorf("the page's %s is not what %s has", name, file)
		}
	}
	root := chainOf(1, nil)[0]
	chain, err := narrow(root+"\n", // as agentgw prints it
		"agent-2", holder(0), noon)
	if err != nil {
		t.Fatal(err)
	}
	if v := verify(chain, ask(2)); !v.Holds || !v.Chain.Until.Equal(noon.Add(10*time.Minute)) {
		t.Errorf("%+v", v)
	}
	spaced := func(l *link) { l.claims["del_depth"] = 3 - l.i }
	two := strings.Join(chainOf(2, spaced), ", ")
	if three, err := narrow(two, "agent-3", holder(1), noon); err != nil || !verify(three, ask(3)).Holds {
		t.Errorf("with a space behind the comma: %v", err)
	}
	if longer, err := narrow(chain, "agent-3", holder(0), noon); err != nil || verify(longer, ask(3)).Holds {
		t.Errorf("handed on again: %v", err)
	}
}
