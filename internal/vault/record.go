package vault

import (
	"encoding/json"
	"fmt"
	"time"

	"agentgw/internal/oauth"
	"agentgw/internal/secret"
	"agentgw/internal/store"
)

// record is what is sealed of an account: its tokens, and the times that decide what
// is done with them, in milliseconds since 1970. 0 is never.
type record struct {
	Access  string `json:"access,omitempty"`
	Refresh string `json:"refresh,omitempty"` // taken by the token endpoint at Host alone
	Host    string `json:"host,omitempty"`
	Renew   int64  `json:"renew,omitempty"`   // from then on it is renewed behind the calls
	Due     int64  `json:"due,omitempty"`     // from then on calls wait for that
	Expires int64  `json:"expires,omitempty"` // from then on Access is worth nothing
}

const (
	// ahead is the part of a token's life after which it is renewed, and spread how
	// much earlier or later than that, so that what was connected together is not
	// renewed together.
	ahead  = 0.80
	spread = 0.05
	// margin is how much life a token must have left for a call that begins: at most
	// this, and at most a tenth of its life.
	margin = 10 * time.Second
)

// newRecord is the record of a token that came at now. refresh is the one that
// yielded it, which stays good where no other came. chance is from 0 to 1.
func newRecord(t oauth.Token, refresh, host string, now time.Time, chance float64) record {
	r := record{Access: t.Access.Reveal(), Refresh: t.Refresh.Reveal(), Host: host}
	if r.Refresh == "" {
		r.Refresh = refresh
	}
	if t.Life > 0 {
		life := float64(t.Life)
		r.Renew = now.Add(time.Duration(life * (ahead + spread*(2*chance-1)))).UnixMilli()
		r.Due = now.Add(t.Life - min(margin, t.Life/10)).UnixMilli()
		r.Expires = now.Add(t.Life).UnixMilli()
	}
	return r
}

// text is what is sealed.
func (r record) text() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic("vault: strings and numbers cannot be written as JSON: " + err.Error())
	}
	return string(b)
}

// alive reports whether the access token is good at now.
func (r record) alive(now time.Time) bool {
	return r.Access != "" && (r.Expires == 0 || now.UnixMilli() < r.Expires)
}

// account is a connected account as it is stored.
type account struct {
	record
	row store.Credential // of version 0: there is none
	in  *contents
}

// What is to be done about an account's token before a call may use it.
type need int

const (
	nothing      need = iota
	renewing          // in the background
	renewal           // before anything else
	reconnecting      // by a person
)

// needs says what an account's token needs at now. Where it cannot be renewed it is
// used to the end.
func (a account) needs(o *OAuth2, now time.Time) need {
	at := now.UnixMilli()
	switch {
	case a.Access != "" && a.Expires == 0 || a.Access != "" && at < a.Renew:
		return nothing
	case a.Refresh == "" && !o.OfItself:
		if a.alive(now) {
			return nothing
		}
		return reconnecting
	case a.alive(now) && at < a.Due:
		return renewing
	}
	return renewal
}

// account returns what is stored of an account. A client that gets tokens of its own
// has one before anything is stored. Errors: as Open, and ErrReconnect.
func (v *Vault) account(ref Ref, form Form) (account, error) {
	c := v.rows.Load()
	text, row, err := c.read(field{ref, tokenField}, form.Host)
	a := account{row: row, in: c}
	switch {
	case row.Version == 0 && form.OAuth2.OfItself:
		return a, nil
	case err != nil:
		return a, err
	case row.State == stateReconnect:
		return a, ErrReconnect
	}
	if err := json.Unmarshal([]byte(text), &a.record); err != nil {
		return a, ErrCorrupt // and not the decoder's words, which may quote it
	}
	if form.OAuth2.OfItself {
		a.Refresh = "" // one that a server gave all the same (RFC 6749 section 4.4.3) is of no use: nobody could connect anything
	}
	if a.Refresh != "" && a.Host != form.OAuth2.Host() {
		return a, fmt.Errorf("%w: its refresh token came from %s and not from %s; connect the account again", ErrHost, a.Host, form.OAuth2.Host())
	}
	if a.Access == "" {
		return a, nil // it has a refresh token to begin with
	}
	return a, form.check(a.Access)
}

// client returns the client of an oauth2 service, with its secret.
func (v *Vault) client(service string, o *OAuth2) (oauth.Client, error) {
	c := o.Client
	if c.Auth == oauth.AuthNone {
		return c, nil
	}
	text, _, err := v.rows.Load().read(field{Ref{Service: service}, clientField}, o.Host())
	if err != nil {
		return c, fmt.Errorf("the client secret of %q: %w", service, err)
	}
	c.Secret = secret.New(text)
	return c, nil
}
