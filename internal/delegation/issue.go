package delegation

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
)

// Grant is what a delegation is to say.
type Grant struct {
	User, Agent string // names without prefix
	Tenant      string // the agent's named tenant; "" for none
	Thumbprint  string // of the key that may hand it on; "" for none
	Depth       int    // how often it may be handed on
	Details     []Detail
	From, Until time.Time // to the second
}

// NewID makes a jti.
func NewID() string { return rand.Text() }

// Issue makes a root, signed by the root key that kid names. uri is the gateway's.
func Issue(root crypto.Signer, kid, uri string, g Grant) (text string, said Claims, err error) {
	said = g.claims(uri, g.From)
	text, err = sign(root, map[jose.HeaderKey]any{"kid": kid}, &said, true)
	return text, said, err
}

// Narrow makes the link behind parent, whose cnf must name key, and returns the whole
// chain: chain with the new link behind it. User and tenant are the parent's whatever g
// says; so are details and times that g leaves out. What would be more than the parent
// has is an error.
func Narrow(key ed25519.PrivateKey, chain string, g Grant, now time.Time) (longer string, said Claims, err error) {
	chain = strings.TrimSpace(chain)
	links, f := readChain(chain)
	if f != nil {
		return "", said, errors.New(f.verdict(Chain{}).Detail)
	}
	parent := &links[len(links)-1]
	public := key.Public().(ed25519.PublicKey)
	if parent.claims.Confirm == nil || parent.claims.Confirm.Thumbprint != Thumbprint(public) {
		return "", said, errors.New("the delegation may not be handed on with this key: its cnf.jkt names another, or none")
	}
	said = g.claims(parent.claims.Audience, now)
	said.User, said.Tenant = parent.claims.User, parent.claims.Tenant
	if g.Details == nil {
		said.Details = parent.claims.Details
	}
	if g.From.IsZero() {
		said.From = max(parent.claims.From, said.Issued)
	}
	if g.Until.IsZero() {
		said.Until = parent.claims.Until
	}
	said.Parent = strict.EncodeToString(parent.hash[:])
	if f := narrower(&parent.claims, &said); f != nil {
		return "", said, errors.New("the new link would be refused: " + f.detail)
	}
	text, err := sign(key, map[jose.HeaderKey]any{"jwk": &jwk{"OKP", "Ed25519", strict.EncodeToString(public)}}, &said, false)
	if err != nil {
		return "", said, err
	}
	longer = chain + "," + text
	if _, f := readChain(longer); f != nil {
		return "", said, errors.New("the new link would be refused: " + f.detail)
	}
	return longer, said, nil
}

func (g *Grant) claims(uri string, issued time.Time) Claims {
	c := Claims{
		Issuer: uri, Audience: uri, User: userPrefix + g.User, Tenant: g.Tenant, Actor: Actor{agentPrefix + g.Agent},
		Details: g.Details, Depth: &g.Depth, Issued: issued.Unix(), From: g.From.Unix(), Until: g.Until.Unix(), ID: NewID(),
	}
	if g.Thumbprint != "" {
		c.Confirm = &Confirm{g.Thumbprint}
	}
	return c
}

// sign spells and signs a link, after it has judged it as a verifier will.
func sign(key crypto.Signer, extra map[jose.HeaderKey]any, said *Claims, root bool) (string, error) {
	if err := said.check(root); err != nil {
		return "", fmt.Errorf("the delegation would be refused: %w", err)
	}
	payload, err := json.Marshal(said)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{ExtraHeaders: extra}).WithType(mediaType)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: cryptosigner.Opaque(key)}, options)
	if err != nil {
		return "", err
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return jws.CompactSerialize()
}
