package oauth_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/oauth"
	"agentgw/internal/secret"
)

// asked is what a token endpoint was sent.
type asked struct {
	form          url.Values
	authorization string
	accept        string
}

// endpoint is a token endpoint that answers as told, and what it was sent.
func endpoint(t *testing.T, status int, answer string) (oauth.Client, *[]asked) {
	t.Helper()
	var log []asked
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || len(r.URL.RawQuery) > 0 {
			t.Errorf("%v, query %q", err, r.URL.RawQuery)
		}
		log = append(log, asked{r.PostForm, r.Header.Get("Authorization"), r.Header.Get("Accept")})
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return oauth.Client{TokenURL: s.URL + "/token", ID: "my:client", Secret: secret.New("s&cr:t")}, &log
}

const good = `{"access_token":"at","refresh_token":"rt","token_type":"Bearer","expires_in":3600}`

// TestRequestsForTokens holds what is sent against RFC 6749: section 4.1.3, 6, 4.4.2
// and 2.3.1.
func TestRequestsForTokens(t *testing.T) {
	a := oauth.Authorization{Redirect: "https://gw.example/oauth/s/callback", State: "not sent", Verifier: "v"}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("my%3Aclient:s%26cr%3At"))
	exchange := func(c oauth.Client) (oauth.Token, error) {
		return c.Exchange(t.Context(), http.DefaultTransport, "code", a)
	}
	renew := func(c oauth.Client) (oauth.Token, error) {
		return c.Renew(t.Context(), http.DefaultTransport, secret.New("old"))
	}
	itself := func(c oauth.Client) (oauth.Token, error) { return c.OfItself(t.Context(), http.DefaultTransport) }
	for _, c := range []struct {
		name          string
		ask           func(oauth.Client) (oauth.Token, error)
		auth          string
		params        map[string]string
		form          url.Values
		authorization string
	}{
		{"a code", exchange, "", nil, url.Values{"grant_type": {"authorization_code"}, "code": {"code"}, "redirect_uri": {a.Redirect}, "code_verifier": {"v"}}, basic},
		{"a refresh token", renew, oauth.AuthBasic, nil, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"old"}}, basic},
		{"the client's own", itself, oauth.AuthBasic, nil, url.Values{"grant_type": {"client_credentials"}, "scope": {"a b"}}, basic},
		{"in the body", renew, oauth.AuthPost, nil, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"old"}, "client_id": {"my:client"}, "client_secret": {"s&cr:t"}}, ""},
		{"of a public client", renew, oauth.AuthNone, nil, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"old"}, "client_id": {"my:client"}}, ""},
		{"with more", renew, oauth.AuthBasic, map[string]string{"audience": "x", "grant_type": "evil"},
			url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"old"}, "audience": {"x"}}, basic},
	} {
		client, log := endpoint(t, 200, good)
		client.Auth, client.Scopes, client.TokenParams = c.auth, []string{"a", "b"}, c.params
		token, err := c.ask(client)
		if err != nil || token.Access.Reveal() != "at" || token.Refresh.Reveal() != "rt" || token.Life != time.Hour {
			t.Errorf("%s: %+v, %v", c.name, token, err)
		}
		if len(*log) != 1 {
			t.Fatalf("%s: asked %d times", c.name, len(*log))
		}
		got := (*log)[0]
		if d := cmp.Diff(c.form, got.form); d != "" || got.authorization != c.authorization || got.accept != "application/json" {
			t.Errorf("%s: %q, %q\n-want +got:\n%s", c.name, got.authorization, got.accept, d)
		}
	}
}

// once is a transport that looks whether a request could be sent twice.
type once func(*http.Request) (*http.Response, error)

func (o once) RoundTrip(r *http.Request) (*http.Response, error) { return o(r) }

// TestARequestCannotBeSentAgain, by net/http neither, which does so where it can have
// the body anew: a code or a refresh token may have been spent by then.
func TestARequestCannotBeSentAgain(t *testing.T) {
	client, _ := endpoint(t, 200, good)
	sent := 0
	_, err := client.Renew(t.Context(), once(func(r *http.Request) (*http.Response, error) {
		if sent++; r.GetBody != nil || r.Body == nil || r.Header.Get("Idempotency-Key") != "" {
			t.Error("it could")
		}
		return http.DefaultTransport.RoundTrip(r)
	}), secret.New("rt"))
	if err != nil || sent != 1 {
		t.Errorf("sent %d times, %v", sent, err)
	}
}

func TestAnswersOfTokenEndpoints(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		status int
		answer string
		life   time.Duration
		err    string // "": a token
		final  bool
	}{
		{200, good, hour, "", false},
		{200, `{"access_token":"at","token_type":"bearer"}`, 0, "", false},
		{200, `{"access_token":"at","token_type":"BEARER","expires_in":"3600"}`, hour, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":null,"more":{"a":[1]}}`, 0, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":0}`, 1, "", false}, // over at once, and not never
		{200, `{"access_token":"at","token_type":"bearer","expires_in":99999999999999999999999}`, 876000 * hour, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":9223372037}`, 876000 * hour, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":-1}`, 1, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":1e4000}`, 876000 * hour, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":-1e4000}`, 1, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":1e-4000}`, 1, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":3.6e3}`, hour, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":3600.5}`, hour + time.Second/2, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":true}`, 0, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":"soon"}`, 0, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":"NaN"}`, 0, "", false},
		{200, `{"access_token":"at","token_type":"bearer","expires_in":[3600]}`, 0, "", false},
		{200, `{"access_token":"at","token_type":"mac"}`, 0, "not a bearer token", false},
		{200, `{"access_token":"at"}`, 0, "", false},
		{200, `{"token_type":"bearer"}`, 0, "no access_token", false},
		{200, `{"Access_Token":"at","token_type":"bearer"}`, 0, "no access_token", false},
		{200, `{"access_token":"one","access_token":"two","token_type":"bearer"}`, 0, "unique names", false},
		{200, `{"access_token":["at"],"token_type":"bearer"}`, 0, "not a JSON object", false},
		{200, `{"access_token":"at","token_type":"bearer"} {}`, 0, "not a JSON object", false},
		{200, ``, 0, "not a JSON object", false},
		{200, `access_token=at&token_type=bearer`, 0, "not a JSON object", false},
		{200, `{"error":"bad_refresh_token"}`, 0, "bad_refresh_token", true},
		{200, `{"error":"canary"}`, 0, "no error code that is known", false},
		{400, `{"error":"invalid_grant","error_description":"canary"}`, 0, "status 400: invalid_grant", true},
		{401, `{"error":"invalid_client"}`, 0, "invalid_client", false},
		{400, `{"error":"canary"}`, 0, "no error code that is known", false},
		{400, `canary`, 0, "no error code that is known", false},
		{500, `{"error":"invalid_grant"}`, 0, "status 500", false},
		{503, good, 0, "status 503", false},
		{204, good, 0, "status 204", false},
		{302, good, 0, "status 302", false},
	} {
		client, log := endpoint(t, c.status, c.answer)
		token, err := client.Renew(t.Context(), http.DefaultTransport, secret.New("old"))
		if len(*log) != 1 {
			t.Errorf("%d %s: asked %d times", c.status, c.answer, len(*log))
		}
		var refused *oauth.Error
		switch {
		case c.err == "":
			if err != nil || token.Access.Reveal() != "at" || token.Life != c.life {
				t.Errorf("%d %s: %v, %v", c.status, c.answer, token.Life, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "canary") || token != (oauth.Token{}):
			t.Errorf("%d %s: %v", c.status, c.answer, err)
		case (errors.As(err, &refused) && refused.Final()) != c.final:
			t.Errorf("%d %s: final is %v", c.status, c.answer, !c.final)
		}
	}
}

// TestARedirectIsNotFollowed: the one who is sent there is given a secret.
func TestARedirectIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var second int
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { second++ }))
		first := httptest.NewServer(http.RedirectHandler(other.URL, status))
		c := oauth.Client{TokenURL: first.URL, ID: "c", Secret: secret.New("s")}
		_, err := c.Renew(t.Context(), http.DefaultTransport, secret.New("old"))
		var refused *oauth.Error
		if !errors.As(err, &refused) || refused.Status != status || refused.Final() || second != 0 {
			t.Errorf("%d: %v, and the second server was asked %d times", status, err, second)
		}
		first.Close()
		other.Close()
	}
}

// TestAnEndlessAnswerIsReadToItsBound, and no further.
func TestAnEndlessAnswerIsReadToItsBound(t *testing.T) {
	for _, status := range []int{200, 400} {
		sent := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			line := []byte(strings.Repeat(" ", 32<<10))
			for {
				n, err := w.Write(line)
				if sent += n; err != nil {
					return
				}
			}
		}))
		c := oauth.Client{TokenURL: s.URL, ID: "c"}
		_, err := c.OfItself(t.Context(), http.DefaultTransport)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(oauth.MaxAnswer)) {
			t.Errorf("%d: %v", status, err)
		}
		s.Close() // which waits for the handler
		if sent > 64*oauth.MaxAnswer {
			t.Errorf("%d: %d bytes were sent", status, sent)
		}
	}
}

func TestAnAnswerThatDoesNotCome(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = r.ParseForm(); cancel(); <-r.Context().Done() }))
	defer s.Close()
	c := oauth.Client{TokenURL: s.URL, ID: "c"}
	if _, err := c.OfItself(ctx, http.DefaultTransport); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestAuthorizeAt holds the address against RFC 6749 section 4.1.1 and the example of
// RFC 7636 appendix B.
func TestAuthorizeAt(t *testing.T) {
	const verifier, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	if sum := sha256.Sum256([]byte(verifier)); base64.RawURLEncoding.EncodeToString(sum[:]) != challenge {
		t.Fatal("the example does not hold")
	}
	c := oauth.Client{
		AuthorizeURL: "https://idp.example/a/b", ID: "c&d", Secret: secret.New("canary"), Scopes: []string{"r", "w"},
		AuthorizeParams: map[string]string{"access_type": "offline", "state": "evil"}, TokenParams: map[string]string{"audience": "x"},
	}
	got := c.AuthorizeAt(oauth.Authorization{Redirect: "https://gw.example/oauth/s/callback", State: "st&te", Verifier: verifier})
	base, query, _ := strings.Cut(got, "?")
	values, err := url.ParseQuery(query)
	if err != nil || base != c.AuthorizeURL || strings.Contains(got, "canary") || strings.Contains(got, verifier) {
		t.Errorf("%s, %v", got, err)
	}
	if d := cmp.Diff(url.Values{
		"response_type": {"code"}, "client_id": {"c&d"}, "redirect_uri": {"https://gw.example/oauth/s/callback"}, "state": {"st&te"},
		"scope": {"r w"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"}, "access_type": {"offline"},
	}, values); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
