package vault

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"agentgw/internal/oauth"
	"agentgw/internal/store"
)

// ErrLink says that a link, or what came back from where it led, is not good: never
// made, used, expired, of another service, or of another browser. Which of them is
// nobody's business.
var ErrLink = errors.New("the link is not valid")

// LinkStore is what links need of a store; see package store for the errors.
type LinkStore interface {
	AddLink(ctx context.Context, l store.Link, now time.Time) error
	FindLink(ctx context.Context, digest [32]byte, now time.Time) (store.Link, error)
	TakeLink(ctx context.Context, digest [32]byte, now time.Time) (store.Link, error)
}

// NewLink makes the secret of a link by which somebody may connect an account to ref
// until it expires, once.
func NewLink(ctx context.Context, s LinkStore, ref Ref, now, expires time.Time) (secret string, err error) {
	secret = rand.Text()
	return secret, s.AddLink(ctx, store.Link{Digest: sha256.Sum256([]byte(secret)), Service: ref.Service, User: ref.User, ExpiresAt: expires}, now)
}

// Links turns a link into a connected account. Between the two ends of a person's
// way, which leads over the authorization server, it keeps nothing: what the second
// end needs is in a cookie, and in keyed hashes that anybody may carry and nobody make.
//
//	cookie   = link "." nonce
//	state    = HMAC-SHA-256(key, "state" || len||service || len||link || len||nonce)
//	verifier = the same of "verifier"
//
// So strangers who begin fill nothing, a page that is fetched ahead of the person
// uses nothing up, and who comes back with a state that was made for another browser
// has not its cookie (RFC 9700 section 4.7). Safe for concurrent use.
type Links struct {
	store  LinkStore
	tokens *Tokens
	key    [32]byte
}

// NewLinks returns links over a store, to accounts of tokens.
func NewLinks(s LinkStore, tokens *Tokens, kek KEK) *Links {
	return &Links{store: s, tokens: tokens, key: kek.DeriveKey("oauth-link")}
}

// Begin returns what a person takes along who has that link: the cookie, and for the
// authorization server the state and the verifier. ErrLink.
func (l *Links) Begin(ctx context.Context, service, link string) (cookie string, a oauth.Authorization, err error) {
	found, err := l.store.FindLink(ctx, sha256.Sum256([]byte(link)), l.tokens.clock.Now())
	if err = l.judge(found, service, err); err != nil {
		return "", a, err
	}
	cookie = link + "." + rand.Text()
	return cookie, l.authorization(service, cookie), nil
}

// For returns whose account a link connects. It uses nothing up. ErrLink.
func (l *Links) For(ctx context.Context, service, link string) (Ref, error) {
	found, err := l.store.FindLink(ctx, sha256.Sum256([]byte(link)), l.tokens.clock.Now())
	return Ref{Service: found.Service, User: found.User}, l.judge(found, service, err)
}

// Returned reports whether a person came back who had begun with that cookie and was
// sent off with that state. It uses nothing up.
func (l *Links) Returned(service, cookie, state string) bool {
	return hmac.Equal([]byte(state), []byte(l.authorization(service, cookie).State))
}

// Finish uses the link up and connects the account, by the code that a person came
// back with to redirect. Where that fails the link is spent all the same. Errors:
// ErrLink, and those of Tokens.Connect.
func (l *Links) Finish(ctx context.Context, service, cookie, code, redirect string, form Form) (Ref, error) {
	link, _, _ := strings.Cut(cookie, ".")
	found, err := l.store.TakeLink(ctx, sha256.Sum256([]byte(link)), l.tokens.clock.Now())
	if err = l.judge(found, service, err); err != nil {
		return Ref{}, err
	}
	a := l.authorization(service, cookie)
	a.Redirect = redirect
	ref := Ref{Service: found.Service, User: found.User}
	return ref, l.tokens.Connect(ctx, ref, form, code, a)
}

func (l *Links) judge(found store.Link, service string, err error) error {
	if errors.Is(err, store.ErrNotFound) || err == nil && found.Service != service {
		return ErrLink
	}
	return err
}

func (l *Links) authorization(service, cookie string) oauth.Authorization {
	link, nonce, _ := strings.Cut(cookie, ".")
	hash := func(label string) string {
		return l.hash(appendField(appendField(appendField([]byte(label), service), link), nonce))
	}
	return oauth.Authorization{State: hash("state"), Verifier: hash("verifier")}
}

// hash is the keyed hash of a message, as text.
func (l *Links) hash(message []byte) string {
	mac := hmac.New(sha256.New, l.key[:])
	mac.Write(message)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
