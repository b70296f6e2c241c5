package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentgw/internal/secret"
)

// MaxAnswer is how much of a token endpoint's answer is read.
const MaxAnswer = 1 << 20

// Token is what a token endpoint gave.
type Token struct {
	Access  secret.Text
	Refresh secret.Text   // empty: none, or that which was used stays
	Life    time.Duration // of Access from now on; 0: not told
}

// Error is a token endpoint's refusal. It quotes nothing of the answer but an error
// code of a closed list.
type Error struct {
	Status int
	Code   string // "" where it is none that is known
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("the token endpoint answered with status %d and no error code that is known", e.Status)
	}
	return fmt.Sprintf("the token endpoint answered with status %d: %s", e.Status, e.Code)
}

// Final reports whether what was sent (a code or a refresh token) will never be
// taken again: asking once more is of no use, a person has to. A client that is
// refused, or a server that fails, says nothing of the sort.
func (e *Error) Final() bool {
	return e.Status < 500 && slices.Contains(final, e.Code)
}

var (
	// RFC 6749 section 5.2, and what two large providers say instead.
	final = []string{"invalid_grant", "bad_refresh_token", "invalid_refresh_token"}
	known = append([]string{
		"invalid_request", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
		"temporarily_unavailable", "server_error", "access_denied", "slow_down",
	}, final...)
)

// Known returns code where it is an error code of RFC 6749 or its like, else "":
// for what may be shown of a stranger's text.
func Known(code string) string {
	if slices.Contains(known, code) {
		return code
	}
	return ""
}

// What ends an exchange besides an *Error and what a transport returns.
var (
	errTooLong = fmt.Errorf("the token endpoint's answer is over %d bytes", MaxAnswer)
	errNoJSON  = errors.New("the token endpoint's answer is not a JSON object of unique names")
	errNoToken = errors.New("the token endpoint's answer has no access_token")
	errType    = errors.New("the token endpoint gave a token that is not a bearer token")
)

// Exchange turns a code into a token.
func (c Client) Exchange(ctx context.Context, over http.RoundTripper, code string, a Authorization) (Token, error) {
	return c.ask(ctx, over, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {a.Redirect}, "code_verifier": {a.Verifier},
	})
}

// Renew turns a refresh token into a token. Many servers take each refresh token
// once, and void all of a person's when one comes twice: whoever calls this stores
// what it returns before anything else.
func (c Client) Renew(ctx context.Context, over http.RoundTripper, refresh secret.Text) (Token, error) {
	return c.ask(ctx, over, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh.Reveal()}})
}

// OfItself returns a token of the client's own, on nobody's behalf (RFC 6749
// section 4.4).
func (c Client) OfItself(ctx context.Context, over http.RoundTripper) (Token, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(c.Scopes) > 0 {
		form.Set("scope", strings.Join(c.Scopes, " "))
	}
	return c.ask(ctx, over, form)
}

func (c Client) ask(ctx context.Context, over http.RoundTripper, form url.Values) (Token, error) {
	r, err := c.request(ctx, form)
	if err != nil {
		return Token{}, err
	}
	answer, err := over.RoundTrip(r)
	if err != nil {
		return Token{}, fmt.Errorf("asking the token endpoint: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, MaxAnswer+1))
	if err != nil {
		return Token{}, fmt.Errorf("reading the token endpoint's answer: %w", err)
	}
	if len(body) > MaxAnswer {
		return Token{}, errTooLong
	}
	return read(answer.StatusCode, body)
}

func (c Client) request(ctx context.Context, form url.Values) (*http.Request, error) {
	switch c.Auth {
	case AuthPost:
		form.Set("client_id", c.ID)
		form.Set("client_secret", c.Secret.Reveal())
	case AuthNone:
		form.Set("client_id", c.ID)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.TokenURL, strings.NewReader(more(c.TokenParams, form).Encode()))
	if err != nil {
		return nil, err
	}
	r.GetBody = nil // a request that can be had twice may be sent twice
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if c.Auth == AuthBasic || c.Auth == "" {
		// Encoded before they are joined (RFC 6749 section 2.3.1): an id may hold a colon.
		r.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret.Reveal()))
	}
	return r, nil
}

// read judges an answer. Some endpoints refuse with status 200.
func read(status int, body []byte) (Token, error) {
	var a struct {
		Access  string         `json:"access_token"`
		Refresh string         `json:"refresh_token"`
		Type    string         `json:"token_type"`
		Life    jsontext.Value `json:"expires_in"`
		Error   any            `json:"error"`
	}
	err := json.Unmarshal(body, &a)
	code, _ := a.Error.(string)
	switch {
	case status != http.StatusOK:
		return Token{}, &Error{Status: status, Code: Known(code)}
	case err != nil:
		return Token{}, errNoJSON // and not the words of the decoder, which may quote it
	case a.Error != nil:
		return Token{}, &Error{Status: status, Code: Known(code)}
	case a.Access == "":
		return Token{}, errNoToken
	case a.Type != "" && !strings.EqualFold(a.Type, "bearer"): // RFC 6749 requires it, and some leave it out
		return Token{}, errType
	}
	return Token{Access: secret.New(a.Access), Refresh: secret.New(a.Refresh), Life: seconds(a.Life)}, nil
}

const maxLife = 100 * 365 * 24 * time.Hour

// seconds reads expires_in, which some endpoints write as a text, or as a fraction.
// More than a hundred years is a hundred years; 0 and less is over at once, not for
// ever; and what is no number is as if it were not told. An answer is not thrown away
// for it: with it would go a refresh token, in the place of one that is spent.
func seconds(v jsontext.Value) time.Duration {
	n, err := strconv.ParseFloat(strings.Trim(string(v), `"`), 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && n > 0, n > maxLife.Seconds():
		return maxLife
	case err != nil && n == 0, n != n:
		return 0
	}
	return max(time.Duration(n*float64(time.Second)), 1)
}
