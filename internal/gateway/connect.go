package gateway

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"agentgw/internal/oauth"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/vault"
)

// Connector connects people's accounts: see vault.Links.
type Connector interface {
	For(ctx context.Context, service, link string) (vault.Ref, error)
	Begin(ctx context.Context, service, link string) (cookie string, a oauth.Authorization, err error)
	Returned(service, cookie, state string) bool
	Finish(ctx context.Context, service, cookie, code, redirect string, form vault.Form) (vault.Ref, error)
}

// connectCookie ties the two ends of a person's way to one browser.
const connectCookie = "agentgw_oauth"

// page is what a person sees. No page holds anything of the request, and none is kept.
type page struct {
	status int
	text   string
}

var (
	pageConnected = page{http.StatusOK, "The account is connected. You can close this window."}
	pageInvalid   = page{http.StatusNotFound, "This link is not valid: it was used, or it has expired. Ask whoever sent it for another one."}
	pageStrange   = page{http.StatusBadRequest, "This answer does not belong to a link that was opened in this browser. Open the link that you were sent again, here."}
	pageRefused   = page{http.StatusForbidden, "The account was not connected: the service that it is at did not grant access. You can open the link again."}
	pageFailed    = page{http.StatusBadGateway, "The account was not connected: the service that it is at gave no access. Ask whoever sent the link for another one; the log of the gateway says why."}
	pageTooMany   = page{http.StatusTooManyRequests, "Too many requests came from your address. Wait a minute, and try again."}
	pageFault     = page{http.StatusInternalServerError, "The gateway failed. Its log says why."}
)

func (p page) write(w http.ResponseWriter) {
	writePage(w, p.status, "text/plain", p.text+"\n")
}

func writePage(w http.ResponseWriter, status int, media, text string) {
	h := w.Header()
	h.Set("Content-Type", media+"; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	safePage(h)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the person may be gone
}

// askFirst has a person say whether her account is to be connected, for whom.
//
// Whoever has a link for himself could have another's browser open it: where the
// service grants access without asking again, her account would be his with no
// hand of hers in it (RFC 9700 section 4.7, the other way round).
func askFirst(w http.ResponseWriter, ref vault.Ref, link string) {
	whom := "all users of this gateway"
	if ref.User != "" {
		whom = "the user " + ref.User
	}
	writePage(w, http.StatusOK, "text/html", fmt.Sprintf("<!doctype html><title>Connect an account</title>"+
		"<p>Your account of %s is about to be connected, for %s. Go on if that is what you want, and close this window if it is not."+
		"<p><a href=\"?link=%s\">Go on</a>\n", html.EscapeString(ref.Service), html.EscapeString(whom), url.QueryEscape(link)))
}

// sentByOthers reports whether a page of somebody else's sent the browser here, as browsers
// tell (W3C Fetch Metadata). No page can have them tell otherwise.
func sentByOthers(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// safePage keeps an answer with a secret in its address out of caches, frames and
// Referer.
func safePage(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
}

// startConnecting is GET /oauth/{service}/start?link=SECRET: it sends a person who has
// a link to where the account is, and asks first whom another site has sent. Fetching
// it uses nothing up.
func (g *Gateway) startConnecting(w http.ResponseWriter, r *http.Request, name string) {
	v, service, ok := g.connecting(w, r, name)
	if !ok {
		return
	}
	link, ok := single(r.URL.Query(), "link")
	if service == nil || !ok {
		pageInvalid.write(w)
		return
	}
	if sentByOthers(r) {
		ref, err := g.connector.For(r.Context(), name, link)
		if err != nil {
			g.notConnected(w, name, err)
			return
		}
		askFirst(w, ref, link)
		return
	}
	cookie, a, err := g.connector.Begin(r.Context(), name, link)
	if err != nil {
		g.notConnected(w, name, err)
		return
	}
	base := v.settings.PeopleURL()
	a.Redirect = redirectOf(base, name)
	http.SetCookie(w, g.cookie(base, name, cookie, 600))
	safePage(w.Header())
	w.Header().Set("Location", CredentialForm(service).OAuth2.AuthorizeAt(a))
	w.WriteHeader(http.StatusSeeOther)
}

// finishConnecting is GET /oauth/{service}/callback, to which the service that the
// account is at sends the person back (RFC 6749 section 4.1.2).
func (g *Gateway) finishConnecting(w http.ResponseWriter, r *http.Request, name string) {
	v, service, ok := g.connecting(w, r, name)
	if !ok {
		return
	}
	query := r.URL.Query()
	state, ok := single(query, "state")
	cookie, err := r.Cookie(connectCookie)
	if service == nil || !ok || err != nil || !g.connector.Returned(name, cookie.Value, state) || !fromIssuer(service, query) {
		pageStrange.write(w)
		return
	}
	base := v.settings.PeopleURL()
	code, ok := single(query, "code")
	if !ok || query.Has("error") { // never both (RFC 6749 section 4.1.2.1)
		said, _ := single(query, "error")
		g.log.Warn("an account was not connected", "service", name, "error", "access was not granted: "+oauth.Known(said))
		pageRefused.write(w)
		return
	}
	http.SetCookie(w, g.cookie(base, name, "", -1))
	ref, err := g.connector.Finish(r.Context(), name, cookie.Value, code, redirectOf(base, name), CredentialForm(service))
	if err != nil {
		g.notConnected(w, name, err)
		return
	}
	g.log.Info("an account was connected", "service", ref.Service, "user", ref.User)
	pageConnected.write(w)
}

// connecting is the beginning of both: it charges the address, and finds the service,
// nil where no account of it can be connected.
func (g *Gateway) connecting(w http.ResponseWriter, r *http.Request, name string) (*view, *registry.Service, bool) {
	call := g.call(r)
	if charge := g.limiter.Take(g.addressOf(call), g.nanos.Nanos()); charge.Refused() {
		wait := charge.Verdict().Wait
		w.Header().Set("Retry-After", strconv.FormatInt(seconds(wait+jitter(wait)), 10))
		pageTooMany.write(w)
		return nil, nil, false
	}
	service := call.view.registry.Services[name]
	if service != nil && (service.Credential.OAuth2 == nil || service.Credential.OAuth2.Flow != registry.FlowAuthorizationCode) {
		service = nil
	}
	return call.view, service, true
}

// addressOf is the bucket of a client address: of failed authentications, and of
// requests by people.
func (g *Gateway) addressOf(call *Call) *ratelimit.Ref {
	return ratelimit.NewRef(ratelimit.Addresses, ratelimit.KindAddress, addressKey(call.Address), call.view.failures.Limit).From(call.view.failures.since)
}

func (g *Gateway) notConnected(w http.ResponseWriter, service string, err error) {
	switch {
	case errors.Is(err, vault.ErrLink):
		pageInvalid.write(w)
		return
	case errors.Is(err, vault.ErrConnect), errors.Is(err, vault.ErrMissing), errors.Is(err, vault.ErrHost):
		pageFailed.write(w)
	default:
		pageFault.write(w)
	}
	g.log.Warn("an account was not connected", "service", service, "error", err)
}

// single returns a parameter that is there once; one that comes twice is none
// (RFC 6749 section 3.1).
func single(query url.Values, name string) (string, bool) {
	values := query[name]
	if len(values) != 1 || values[0] == "" {
		return "", false
	}
	return values[0], true
}

// fromIssuer reports whether an answer comes from the issuer that the registry names,
// if it does (RFC 9207). Where it does not, the service's own address for answers tells
// one server from another.
func fromIssuer(service *registry.Service, query url.Values) bool {
	want := service.Credential.OAuth2.Issuer
	got, ok := single(query, "iss")
	return want == "" || ok && got == want
}

// redirectOf is where the service that an account is at sends people back to. It must
// be registered there, exactly.
func redirectOf(base, service string) string { return base + "/oauth/" + service + "/callback" }

// StartOf is where a person who has a link begins.
func StartOf(base, service, link string) string {
	return base + "/oauth/" + service + "/start?link=" + url.QueryEscape(link)
}

func (g *Gateway) cookie(base, service, value string, age int) *http.Cookie {
	path := redirectOf(base, service)
	if u, err := url.Parse(path); err == nil {
		path = u.Path
	}
	return &http.Cookie{
		Name: connectCookie, Value: value, Path: path, MaxAge: age, HttpOnly: true,
		Secure: strings.HasPrefix(base, "https://"), SameSite: http.SameSiteLaxMode, // it has to come along from elsewhere
	}
}
