package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
)

// Open services check their callers' own credentials, which are passed on to them. Who
// calls one without a key of the gateway is known by such a credential, and goes through
// the pipeline as everybody does: he is an identity.Key that is in no directory, whose
// scope is that service, with a bucket of his own in step 5 and no tenant.

// open is the open service that a call is for, known before anything of it is read; ""
// for any other. An act says in its body what it is for, and so wants a key.
func (call *Call) open() string {
	if call.proxied != nil && call.view.isOpen(call.proxied.service) {
		return call.proxied.service
	}
	return ""
}

// whoMay is who shares the bucket of a caller of an open service, as that is told him.
func (call *Call) whoMay() string {
	if call.Key.ID == identity.Anonymous {
		return "all callers without a bearer token or an x-api-key of their own together"
	}
	return "each caller of open services"
}

func (v *view) isOpen(service string) bool {
	s := v.registry.Services[service]
	return s != nil && s.Access == registry.AccessOpen
}

// openCaller is who calls an open service without a valid key: whom an issuer of the
// registry says that he is, or else whoever has the credential that he brings. What looks
// like a key of the gateway is none of the service's, and its bearer is told so.
func (g *Gateway) openCaller(call *Call, service string, now time.Time) (*identity.Secret, error) {
	if text, ok := identity.Token(call.In.Header); ok {
		if holder, err := call.view.tokens.Authenticate(call.In.Context(), text, now); err == nil {
			return identity.NewOpenCaller(*holder.Key, service), nil
		}
	}
	name, err := g.pseudonyms.Caller(call.In.Header)
	if err != nil {
		return nil, err
	}
	return identity.NewOpenCaller(identity.Key{ID: name}, service), nil
}

// byAPage reports whether a page in a browser asks, which is of another site than the one
// that it asks. A service may be open to all who reach it, and be reached by nobody but
// the people on its machine; whatever page they look at must not be one of them. A
// preflight is answered by the service, and asks for nothing itself (W3C Fetch).
func byAPage(r *http.Request) bool {
	if r.Method == http.MethodOptions {
		return false
	}
	for _, origin := range r.Header["Origin"] {
		if of, err := url.Parse(origin); err != nil || !strings.EqualFold(of.Host, r.Host) {
			return true
		}
	}
	return sentByOthers(r)
}

// accountOfOpenCaller is made for each call: the state is the limiter's, which finds it
// by name. Whom an issuer vouches for is not where strangers are, who can take any number
// of names.
func (v *view) accountOfOpenCaller(k *identity.Key) *account {
	a := &account{
		key:     ratelimit.NewRef(ratelimit.OpenCallers, ratelimit.KindKey, k.ID, ratelimit.Limit{}), // he has none
		table:   ratelimit.OpenCallers,
		buckets: make([]atomic.Pointer[ratelimit.Ref], v.rates),
	}
	if k.Issuer != "" {
		a.table = ratelimit.Callers
	}
	if !v.callers.Unlimited() {
		a.caller = ratelimit.NewRef(a.table, ratelimit.KindCaller, k.ID, v.callers.Limit).From(v.callers.since)
	}
	return a
}

// withCredentials is a header of an act with the agent's own credentials, where the
// action has not put something else, and none with a gateway key in it.
func withCredentials(h, in http.Header) http.Header {
	if h == nil {
		h = http.Header{}
	}
	for _, name := range credentials {
		if values := in[name]; len(values) > 0 && h[name] == nil && !anyKey(values) && !httpguts.HeaderValuesContainsToken(in["Connection"], name) {
			h[name] = values
		}
	}
	return h
}
