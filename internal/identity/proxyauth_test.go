package identity_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

// TestProxyCredentials: the key of a proxy's client is a bearer token or a password in
// Proxy-Authorization, and in no other field.
func TestProxyCredentials(t *testing.T) {
	d, text := callers(t)
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	one, two := text["one"], text["two"]
	type lines = http.Header
	for _, c := range []struct {
		name string
		h    lines
		want string
		err  error
	}{
		{"nothing", lines{}, "", identity.ErrUnauthenticated},
		{"bearer", lines{"Proxy-Authorization": {"Bearer " + one}}, "one", nil},
		{"bearer in lower case", lines{"Proxy-Authorization": {"bearer  " + one}}, "one", nil},
		{"password", lines{"Proxy-Authorization": {basic("x:" + one)}}, "one", nil},
		{"password of nobody", lines{"Proxy-Authorization": {basic(":" + one)}}, "one", nil},
		{"scheme in lower case, spaces", lines{"Proxy-Authorization": {" basic   " + basic("x:" + one)[6:] + "\t"}}, "one", nil},
		{"a user with a colon is one with another password", lines{"Proxy-Authorization": {basic("x:y:" + one)}}, "", identity.ErrUnauthenticated},
		{"the user", lines{"Proxy-Authorization": {basic(one + ":x")}}, "", identity.ErrUnauthenticated},
		{"the user without a password", lines{"Proxy-Authorization": {basic(one)}}, "", identity.ErrUnauthenticated},
		{"no padding", lines{"Proxy-Authorization": {strings.TrimRight(basic("xx:"+one), "=")}}, "", identity.ErrUnauthenticated},
		{"not base64", lines{"Proxy-Authorization": {"Basic " + one}}, "", identity.ErrUnauthenticated},
		{"another scheme", lines{"Proxy-Authorization": {"Digest " + one}}, "", identity.ErrUnauthenticated},
		{"no scheme", lines{"Proxy-Authorization": {one}}, "", identity.ErrUnauthenticated},
		{"unknown", lines{"Proxy-Authorization": {basic("x:" + text["unknown"])}}, "", identity.ErrUnauthenticated},
		{"expired", lines{"Proxy-Authorization": {basic("x:" + text["old"])}}, "", identity.ErrUnauthenticated},
		{"another header", lines{"Authorization": {"Bearer " + one}, "X-Api-Key": {one}, "Agentgate-Key": {one}}, "", identity.ErrUnauthenticated},
		{"another key in another header", lines{"Proxy-Authorization": {"Bearer " + one}, "Authorization": {"Bearer " + two}, "X-Api-Key": {two}}, "one", nil},
		{"twice", lines{"Proxy-Authorization": {"Bearer " + one, basic("x:" + one)}}, "", identity.ErrTwoHeaders},
		{"two", lines{"Proxy-Authorization": {"Bearer " + one, "Bearer " + two}}, "", identity.ErrTwoHeaders},
	} {
		s, err := d.Authenticate(identity.ProxyCredentials(c.h), noon)
		got := ""
		if s != nil {
			got = s.Key.ID
		}
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
	if token, ok := identity.Token(identity.ProxyCredentials(lines{"Proxy-Authorization": {basic("x:a.b.c")}})); !ok || token != "a.b.c" {
		t.Errorf("a token as a password: %q %v", token, ok)
	}
}
