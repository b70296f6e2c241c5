// Package oidctest has an OpenID Connect issuer for tests: discovery and keys over
// a real socket, keys that can be swapped, an outage, and tokens of any content.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// IdP is one issuer. Safe for concurrent use.
type IdP struct {
	URL string // the issuer
	t   testing.TB

	mu       sync.Mutex
	signers  []*Signer // published
	fetches  int       // of keys
	asked    int       // discovery
	answer   http.HandlerFunc
	describe http.HandlerFunc
}

// Signer is a key of an issuer, P-256.
type Signer struct {
	Kid     string
	private *ecdsa.PrivateKey
}

// New starts an issuer with one key.
func New(t testing.TB) *IdP {
	p := &IdP{t: t}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.URL = server.URL
	p.Rotate()
	return p
}

func (p *IdP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	answer, describe := p.answer, p.describe
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		p.asked++
		if answer = describe; answer == nil {
			answer = func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys"})
			}
		}
	case "/keys":
		p.fetches++
		if answer == nil {
			answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(p.Keys()) }
		}
	default:
		answer = http.NotFound
	}
	p.mu.Unlock()
	answer(w, r)
}

// Keys is the key set that is published.
func (p *IdP) Keys() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := []map[string]any{}
	for _, s := range p.signers {
		keys = append(keys, s.JWK())
	}
	b, _ := json.Marshal(map[string]any{"keys": keys})
	return b
}

// Answer has the keys be answered by f; nil: by the keys.
func (p *IdP) Answer(f http.HandlerFunc) { p.mu.Lock(); p.answer = f; p.mu.Unlock() }

// Describe has discovery be answered by f.
func (p *IdP) Describe(f http.HandlerFunc) { p.mu.Lock(); p.describe = f; p.mu.Unlock() }

// Fetches counts how often the keys were asked for, and Asked discovery.
func (p *IdP) Fetches() int { p.mu.Lock(); defer p.mu.Unlock(); return p.fetches }

// Asked counts how often discovery was asked.
func (p *IdP) Asked() int { p.mu.Lock(); defer p.mu.Unlock(); return p.asked }

// Rotate publishes a new key, alone, and returns it.
func (p *IdP) Rotate() *Signer {
	s := NewSigner(p.t, "key-"+rand.Text()[:8])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signers = []*Signer{s}
	return s
}

// Signer is the newest key.
func (p *IdP) Signer() *Signer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signers[len(p.signers)-1]
}

// NewSigner makes a key that nobody publishes.
func NewSigner(t testing.TB, kid string) *Signer {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &Signer{kid, k}
}

// JWK is the public key as it is published.
func (s *Signer) JWK() map[string]any {
	point, err := s.private.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	return map[string]any{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": s.Kid, "x": text(point[1:33]), "y": text(point[33:])}
}

// Claims are those of a good token for audience agentgate at now, with others
// beside or instead; nil takes one away.
func (p *IdP) Claims(now time.Time, subject string, others map[string]any) map[string]any {
	c := map[string]any{"iss": p.URL, "aud": "agentgate", "sub": subject, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	for name, v := range others {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	return c
}

// Token is a good token of subject's, signed with the newest key.
func (p *IdP) Token(now time.Time, subject string, others map[string]any) string {
	return p.Signer().Sign(nil, p.Claims(now, subject, others))
}

// Sign makes a token of these claims; header has members beside or instead of alg
// and kid.
func (s *Signer) Sign(header, claims map[string]any) string {
	h := map[string]any{"alg": "ES256", "kid": s.Kid}
	for name, v := range header {
		if h[name] = v; v == nil {
			delete(h, name)
		}
	}
	return s.SignRaw(object(h), object(claims))
}

// SignRaw signs a header and a payload that need not be JSON.
func (s *Signer) SignRaw(header, payload string) string {
	signed := text([]byte(header)) + "." + text([]byte(payload))
	digest := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, s.private, digest[:])
	if err != nil {
		panic(err)
	}
	var b [64]byte
	r.FillBytes(b[:32])
	v.FillBytes(b[32:])
	return signed + "." + text(b[:])
}

func object(m map[string]any) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprint("a test's claims: ", err))
	}
	return string(b)
}

func text(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
