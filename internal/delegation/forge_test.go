package delegation_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentgw/internal/delegation"
)

// This file makes tokens with nothing but maps and crypto/ed25519, so that a test can
// say anything in one and shares no code with what verifies it.

const gatewayURI = "https://gw.example"

var noon = time.Unix(1_767_268_800, 0)

func seeded(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

var (
	rootKey, oldRootKey, strangerKey = seeded("root"), seeded("old root"), seeded("stranger")
	trust                            = &delegation.Trust{Roots: map[string]ed25519.PublicKey{"root-new": public(rootKey), "root-old": public(oldRootKey)}}
)

// holder is the key that signs link i+1 of a chain.
func holder(i int) ed25519.PrivateKey { return seeded(fmt.Sprint("holder", i)) }

type object = map[string]any

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return b64(sum[:])
}

func jwkOf(k ed25519.PrivateKey) object {
	return object{"kty": "OKP", "crv": "Ed25519", "x": b64(public(k))}
}

// jkt is the thumbprint of RFC 7638 as a reader of that writes it.
func jkt(k ed25519.PrivateKey) string {
	text, _ := json.Marshal(jwkOf(k)) // which sorts the members, and these are all that count
	return hashOf(string(text))
}

// jws signs two texts as they stand.
func jws(header, payload string, k ed25519.PrivateKey) string {
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	return input + "." + b64(ed25519.Sign(k, []byte(input)))
}

func compact(header, claims object, k ed25519.PrivateKey) string {
	h, _ := json.Marshal(header)
	c, _ := json.Marshal(claims)
	return jws(string(h), string(c), k)
}

// link is what one link of a chain says, before it is signed with key.
type link struct {
	i              int
	header, claims object
	key            ed25519.PrivateKey
}

// grant is a detail of authorization_details.
func grant(service string, actions []string, constraints object) object {
	d := object{"type": "agent_action", "service": service, "actions": actions}
	if constraints != nil {
		d["constraints"] = constraints
	}
	return d
}

// chainOf makes a chain of n links that holds for the agent agent-<n>, each equal to
// the one before it but for what has to be less. edit changes links before they are
// signed; later links follow what it made of earlier ones.
func chainOf(n int, edit func(l *link)) []string {
	var chain []string
	for i := range n {
		l := &link{i: i, key: rootKey, header: object{"typ": "agent-delegation+jwt", "alg": "EdDSA", "kid": "root-new"}}
		l.claims = object{
			"iss": gatewayURI, "aud": gatewayURI, "sub": "user:alice", "tenant": "acme", "act": object{"sub": fmt.Sprintf("agent:agent-%d", i+1)},
			"authorization_details": []any{grant("github", []string{"read", "write"}, object{"owner": object{"const": "acme"}, "size": object{"max": 100}})},
			"del_depth":             3 - i, "iat": noon.Unix(), "nbf": noon.Unix(), "exp": noon.Unix() + 3600, "jti": fmt.Sprintf("token-%d", i+1),
			"cnf": object{"jkt": jkt(holder(i))},
		}
		if i > 0 {
			l.key = holder(i - 1)
			l.header = object{"typ": "agent-delegation+jwt", "alg": "EdDSA", "jwk": jwkOf(l.key)}
			l.claims["par"] = hashOf(chain[i-1])
		}
		if edit != nil {
			edit(l)
		}
		chain = append(chain, compact(l.header, l.claims, l.key))
	}
	return chain
}

// at edits one link of a chain.
func at(i int, edit func(l *link)) func(*link) {
	return func(l *link) {
		if l.i == i {
			edit(l)
		}
	}
}

// set sets a claim of one link; nil removes it.
func set(i int, name string, value any) func(*link) {
	return at(i, func(l *link) {
		if l.claims[name] = value; value == nil {
			delete(l.claims, name)
		}
	})
}

func field(chain []string) string { return strings.Join(chain, ", ") }

// ask is the call that chainOf(n, nil) is for.
func ask(n int) delegation.Ask {
	return delegation.Ask{
		Agent: fmt.Sprintf("agent-%d", n), User: "alice", Tenant: "acme", Service: "github", Action: "read",
		Params: []byte(`{"owner":"acme","size":7,"free":[1]}`),
	}
}

func verify(text string, a delegation.Ask) delegation.Verdict {
	return delegation.Verify(text, trust, gatewayURI, noon.Add(time.Minute), a)
}

// wantReason holds that a chain was refused for this, and what is known of it.
func wantReason(t *testing.T, v delegation.Verdict, want delegation.Reason) {
	t.Helper()
	if v.Holds || v.Reason != want {
		t.Errorf("holds %v, reason %q (%s), want %q", v.Holds, v.Reason, v.Detail, want)
	}
	if v.Detail == "" || strings.Contains(v.Detail, "alice") || strings.Contains(v.Detail, "acme") {
		t.Errorf("the detail is %q", v.Detail)
	}
}
