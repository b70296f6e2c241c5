package oidc_test

import (
	"context"
	"testing"

	"agentgw/internal/oidc/oidctest"
)

// BenchmarkKnownToken is a token that came before: what nearly every call costs.
func BenchmarkKnownToken(b *testing.B) {
	w := newWorld(b, open)
	token := w.idp.Token(noon, "alice", nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.tokens.Authenticate(context.Background(), token, noon); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNewToken has the signature checked (ES256).
func BenchmarkNewToken(b *testing.B) {
	w := newWorld(b, open)
	token := w.idp.Token(noon, "alice", nil)
	b.ReportAllocs()
	for b.Loop() {
		w.tokens.Forget()
		if _, err := w.tokens.Authenticate(context.Background(), token, noon); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkForgedToken is what a stranger can have done: a signature checked, with a
// key of the issuer's, for nothing.
func BenchmarkForgedToken(b *testing.B) {
	w := newWorld(b, open)
	token := oidctest.NewSigner(b, w.idp.Signer().Kid).Sign(nil, w.idp.Claims(noon, "alice", nil))
	b.ReportAllocs()
	for b.Loop() {
		if w.ask(token) == nil {
			b.Fatal("taken")
		}
	}
}
