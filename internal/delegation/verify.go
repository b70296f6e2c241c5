package delegation

import (
	"crypto/ed25519"
	"crypto/subtle"
	"fmt"
	"time"
)

// Leeway is how far behind the gateway's clock may be that of whoever signed a link,
// when it begins. A link's end has none: nobody acts on a grant that is over.
const Leeway = 60 * time.Second

// Trust is what chains are measured against. It never changes: what is trusted
// anew is a new Trust. The zero value and nil trust nobody.
type Trust struct {
	Roots   map[string]ed25519.PublicKey // by kid
	Revoked Revocations
}

// Trusts reports whether a chain that held goes on to: the root that signed it is one of
// t's still, and nothing of it was revoked. Time is the caller's business. nil trusts none.
func (t *Trust) Trusts(c *Chain) bool {
	return t != nil && t.Roots[c.Root] != nil && !t.Revoked.Has(c)
}

// Ask is what a call wants of the chain that it brings.
type Ask struct {
	Agent   string // who calls, as the gateway knows it
	User    string // on whose behalf
	Tenant  string // the named tenant that the caller is of; "" for none
	Service string
	Action  string
	Params  []byte // the JSON object of the parameters as they are sent; sound, no name twice
}

// Link names a link of a chain whose signatures hold.
type Link struct {
	ID    string   // jti
	Agent string   // act.sub
	Hash  [32]byte // SHA-256 of its text
}

// Verdict is what became of a chain. The zero value is a chain that does not hold.
type Verdict struct {
	Holds  bool
	Reason Reason // why not; for the operator, never for who called
	Detail string // the same in words, with the link's number; nothing that the chain says is in it
	Chain  Chain  // as much of it as is signed by who may sign it
}

// Chain is what is kept of a verified chain.
type Chain struct {
	Links  []Link // root first
	Root   string // kid of the key that signed the first
	User   string // sub
	Issued time.Time
	Until  time.Time
}

// Verify judges the value of an Agentgate-Delegation header at now. uri is the
// gateway's own, which every link must name. The order of its steps is told in
// docs/delegation.md; the first that fails is the reason.
func Verify(field string, trust *Trust, uri string, now time.Time, ask Ask) Verdict {
	chain, v := verifyChain(field, trust, uri, now)
	if !v.Holds {
		return v
	}
	leaf := &chain[len(chain)-1].claims
	f := asked(leaf, &ask)
	if f == nil && trust.Revoked.Has(&v.Chain) {
		f = revoked()
	}
	if f != nil {
		f.link = len(chain) - 1
		return f.verdict(v.Chain)
	}
	return v
}

func revoked() *fault {
	return &fault{reason: Revoked, detail: "it, a link before it, an agent or its user was revoked, or an agent is none that there is"}
}

// verifyChain is what Verify asks of a chain whoever sends it for whatever.
func verifyChain(field string, trust *Trust, uri string, now time.Time) ([]token, Verdict) {
	chain, f := readChain(field)
	if f != nil {
		return nil, f.verdict(Chain{})
	}
	known := Chain{}
	for i := range chain {
		var parent *token
		if i > 0 {
			parent = &chain[i-1]
		}
		if f := signed(&chain[i], parent, trust, uri); f != nil {
			f.link = i
			return chain, f.verdict(known)
		}
		known.add(&chain[i])
	}
	for i := range chain {
		f := current(&chain[i].claims, now)
		if f == nil && i > 0 {
			f = narrower(&chain[i-1].claims, &chain[i].claims)
		}
		for before := range i {
			if f == nil && chain[before].claims.ID == chain[i].claims.ID {
				f = &fault{Malformed, i, "its jti stands in the chain twice"}
			}
		}
		if f != nil {
			f.link = i
			return chain, f.verdict(known)
		}
	}
	return chain, Verdict{Holds: true, Chain: known}
}

func (c *Chain) add(t *token) {
	if len(c.Links) == 0 {
		c.Links = make([]Link, 0, MaxLinks)
		c.Root, c.User, c.Issued = t.header.Kid, t.claims.User, time.Unix(t.claims.Issued, 0)
	}
	c.Links = append(c.Links, Link{t.claims.ID, t.claims.Actor.Agent, t.hash})
	c.Until = time.Unix(t.claims.Until, 0)
}

// signed reports why a link is not signed by who may sign it: the root by one of the
// roots, any other by the holder of the key that its parent names.
func signed(t, parent *token, trust *Trust, uri string) *fault {
	var key ed25519.PublicKey
	if parent == nil {
		if trust != nil {
			key = trust.Roots[t.header.Kid]
		}
		if key == nil {
			return &fault{reason: UnknownRoot, detail: "no root of that kid is trusted here"}
		}
	} else {
		var ok bool
		if key, ok = t.header.JWK.key(); !ok {
			return &fault{reason: Malformed, detail: "its jwk is no key"}
		}
		if parent.claims.Confirm == nil || !same(parent.claims.Confirm.Thumbprint, Thumbprint(key)) {
			return &fault{reason: WrongKey, detail: "the link before it names another key, or none"}
		}
	}
	if !t.signedBy(key) {
		return &fault{reason: BadSignature, detail: "its signature does not hold"}
	}
	if parent != nil && !same(t.claims.Parent, strict.EncodeToString(parent.hash[:])) {
		return &fault{reason: WrongParent, detail: "it was made for another link than the one before it"}
	}
	if t.claims.Issuer != uri {
		return &fault{reason: WrongIssuer, detail: "its iss is not this gateway"}
	}
	if t.claims.Audience != uri {
		return &fault{reason: WrongAudience, detail: "its aud is not this gateway"}
	}
	return nil
}

// current reports why a link is not of this moment.
func current(c *Claims, now time.Time) *fault {
	if !now.Before(time.Unix(c.Until, 0)) {
		return &fault{reason: Expired, detail: "it is over"}
	}
	if now.Add(Leeway).Before(time.Unix(max(c.From, c.Issued), 0)) {
		return &fault{reason: NotYet, detail: "it has not begun"}
	}
	return nil
}

// same compares in a time that does not depend on where two texts differ.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// fault is why a chain does not hold, and at which of its links.
type fault struct {
	reason Reason
	link   int // from 0
	detail string
}

func (f *fault) verdict(known Chain) Verdict {
	return Verdict{Reason: f.reason, Detail: fmt.Sprintf("link %d: %s", f.link+1, f.detail), Chain: known}
}
