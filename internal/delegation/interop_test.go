package delegation_test

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentgw/internal/delegation"
)

// jose has npm's jose answer questions, one line each. make interop installs it.
func jose[T any](t *testing.T, command string, questions []object) []T {
	t.Helper()
	node := os.Getenv("INTEROP_NODE")
	if node == "" {
		t.Skip("make interop asks jose")
	}
	var in bytes.Buffer
	for _, q := range questions {
		if err := json.NewEncoder(&in).Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), node, "jose.mjs", command)
	cmd.Dir, cmd.Stdin, cmd.Stderr = "../../interop", &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var answers []T
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var a T
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(questions) {
		t.Fatalf("%d answers to %d questions", len(answers), len(questions))
	}
	return answers
}

const interopTokens = 1000

func privateJWK(k ed25519.PrivateKey) object {
	j := jwkOf(k)
	j["d"] = b64(k.Seed())
	return j
}

// variety makes each link of a test another, in what a serialiser may do in several ways.
func variety(i int) func(*link) {
	r := rand.New(rand.NewPCG(uint64(i), 3))
	return func(l *link) {
		l.claims["jti"] = fmt.Sprintf("%d-%d", i, l.i)
		if l.i == 0 {
			name := []string{"acme", "ü", "a/b", "\u2028", "<&>", `"`, "日本"}[r.IntN(7)]
			l.claims["authorization_details"] = []any{grant("github", []string{"read"}, object{"owner": object{"enum": []any{"acme", name, r.IntN(1 << 40), true, 0.5}}})}
		}
	}
}

// TestJoseSigns: a thousand tokens that jose signs hold here, every second of them a
// chain that the page's example has narrowed.
func TestJoseSigns(t *testing.T) {
	var roots []object
	for i := range interopTokens {
		chainOf(1, func(l *link) {
			variety(i)(l)
			roots = append(roots, object{"header": l.header, "claims": l.claims, "jwk": privateJWK(rootKey)})
		})
	}
	signed := jose[string](t, "sign", roots)
	var children []object
	for i := 1; i < len(signed); i += 2 {
		children = append(children, object{"chain": signed[i], "agent": "agent-2", "jwk": privateJWK(holder(0)), "now": noon.Unix()})
	}
	a, links := ask(1), 0
	a.Params = []byte(`{"owner":"acme"}`)
	for i, chain := range append(signed, jose[string](t, "narrow", children)...) {
		a.Agent = "agent-1"
		if i >= len(signed) {
			a.Agent = "agent-2"
		}
		v := verify(chain, a)
		if !v.Holds {
			t.Errorf("%d: %s %s", i, v.Reason, v.Detail)
		}
		links += len(v.Chain.Links)
	}
	if links != 2*interopTokens {
		t.Errorf("%d links", links)
	}
}

// TestJoseVerifies: a thousand tokens that were signed here, by Issue and Narrow, hold
// for jose too; and of a thousand in which a bit is another it says what we say.
func TestJoseVerifies(t *testing.T) {
	var questions []object
	var want []bool
	r := rand.New(rand.NewPCG(1, 1))
	add := func(token string, key ed25519.PrivateKey) {
		questions, want = append(questions, object{"token": token, "jwk": jwkOf(key)}), append(want, true)
		parts := strings.Split(token, ".")
		i := r.IntN(3)
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		parts[i] = b64(b)
		altered := strings.Join(parts, ".")
		questions, want = append(questions, object{"token": altered, "jwk": jwkOf(key)}), append(want, verify(altered, ask(1)).Holds)
	}
	for range interopTokens / 2 {
		g := delegation.Grant{
			User: "alice", Agent: "agent-1", Tenant: "acme", From: noon, Until: noon.Add(time.Hour), Depth: 1, Thumbprint: jkt(holder(0)),
			Details: []delegation.Detail{{Type: delegation.DetailType, Service: "github", Actions: []string{"read"}}},
		}
		root, _, err := delegation.Issue(rootKey, "root-new", gatewayURI, g)
		if err != nil {
			t.Fatal(err)
		}
		g.Agent, g.Depth, g.Thumbprint = "agent-2", 0, ""
		chain, _, err := delegation.Narrow(holder(0), root, g, noon)
		if err != nil || !verify(chain, ask(2)).Holds {
			t.Fatal(err)
		}
		add(root, rootKey)
		add(strings.TrimPrefix(chain, root+","), holder(0))
	}
	disagreed := 0
	for i, got := range jose[bool](t, "verify", questions) {
		if got != want[i] {
			disagreed++
		}
	}
	if disagreed > 0 || len(questions) != 2*interopTokens {
		t.Errorf("jose says otherwise of %d of %d", disagreed, len(questions))
	}
}
