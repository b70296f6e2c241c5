package delegation_test

import (
	"regexp"
	"strings"
	"testing"

	"agentgw/internal/delegation"
)

var spaced = regexp.MustCompile(`, +`)

// FuzzVerify changes a chain anywhere in any way: none but the chain holds, spaces behind
// its commas aside.
func FuzzVerify(f *testing.F) {
	chain := chainOf(3, nil)
	whole := strings.Join(chain, ",")
	f.Add(uint(0), uint(0), "x")
	f.Add(uint(len(whole)), uint(0), "=")
	f.Add(uint(len(chain[0])+1), uint(0), " ")
	f.Add(uint(len(chain[0])+1), uint(len(chain[1])+1), "")
	f.Add(uint(len(whole)-1), uint(1), "B")
	f.Add(uint(10), uint(2), "\r\n")
	f.Fuzz(func(t *testing.T, at, cut uint, put string) {
		i := int(at % uint(len(whole)+1))
		j := i + int(cut%uint(len(whole)-i+1))
		text := whole[:i] + put + whole[j:]
		if v := verify(text, ask(3)); v.Holds && spaced.ReplaceAllString(text, ",") != whole {
			t.Fatalf("%q holds", text)
		}
	})
}

// FuzzRead gives any text, and any header and claims under a good signature: whatever
// holds is for alice and for agent-1, and Inspect says the same.
func FuzzRead(f *testing.F) {
	f.Add(`{"typ":"agent-delegation+jwt","alg":"EdDSA","kid":"root-new"}`, `{}`)
	f.Add(`{"typ":"agent-delegation+jwt","alg":"EdDSA","kid":"root-new"}`, `{"iss":"https://gw.example","aud":"https://gw.example","sub":"user:alice","tenant":"acme","act":{"sub":"agent:agent-1"},`+
		`"authorization_details":[{"type":"agent_action","service":"github","actions":["read"],"constraints":{"owner":{"const":"acme"}}}],"del_depth":0,"iat":1767268800,"nbf":1767268800,"exp":1767272400,"jti":"x"}`)
	f.Fuzz(func(t *testing.T, header, claims string) {
		for _, text := range []string{jws(header, claims, rootKey), header, claims} {
			v := verify(text, ask(1))
			if v.Holds && (v.Chain.User != "user:alice" || len(v.Chain.Links) != 1 || v.Chain.Links[0].Agent != "agent:agent-1") {
				t.Fatalf("%q: %+v", text, v)
			}
			if shown, inspected := delegation.Inspect(text, trust, gatewayURI, noon); v.Holds && (!inspected.Holds || len(shown) != 1) {
				t.Fatalf("%q: Inspect says %+v", text, inspected)
			}
		}
	})
}
