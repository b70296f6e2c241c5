package identity_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

// TestPseudonyms: who is who at an open service. The first names are what openssl makes
// of the secret:
//
//	printf %s sk-secret-one | openssl dgst -sha256 -mac HMAC -macopt hexkey:0100...00
func TestPseudonyms(t *testing.T) {
	const one, pair = "open:d2e4b22998fca2a7361beb15af00ecbd", "open:65ff15b73520286269bc2069e347cf3d"
	p := identity.NewPseudonyms([32]byte{1})
	key, _ := identity.NewKey()
	valid := key.Reveal()
	mistyped := valid[:len(valid)-1] + string('0'+(valid[len(valid)-1]-'0'+1)%10)
	basic := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	type header = map[string][]string
	for _, c := range []struct {
		name string
		h    header
		want string
		err  error
	}{
		{"bearer", header{"Authorization": {"Bearer sk-secret-one"}}, one, nil},
		{"bearer, otherwise spelled", header{"Authorization": {" bEARER   sk-secret-one\t"}}, one, nil},
		{"x-api-key", header{"X-Api-Key": {"sk-secret-one"}}, one, nil},
		{"x-api-key with white space", header{"X-Api-Key": {"\tsk-secret-one "}}, one, nil},
		{"another", header{"X-Api-Key": {"sk-a:b"}}, pair, nil},
		{"both: the bearer", header{"Authorization": {"Bearer sk-secret-one"}, "X-Api-Key": {"sk-a:b"}}, one, nil},
		{"none", header{}, identity.Anonymous, nil},
		{"empty ones", header{"Authorization": {""}, "X-Api-Key": {" "}}, identity.Anonymous, nil},
		{"a scheme alone", header{"Authorization": {"Bearer "}}, identity.Anonymous, nil},
		{"basic", header{"Authorization": {"Basic " + basic("sk:secret-one")}}, identity.Anonymous, nil},
		{"basic beside x-api-key", header{"Authorization": {"Basic " + basic("a:b")}, "X-Api-Key": {"sk-secret-one"}}, one, nil},
		{"another scheme", header{"Authorization": {"Digest username=\"u\""}}, identity.Anonymous, nil},
		{"a cookie", header{"Cookie": {"session=sk-secret-one"}}, identity.Anonymous, nil},
		{"the gateway's own header", header{"Agentgate-Key": {"sk-secret-one"}}, identity.Anonymous, nil},
		{"two lines", header{"Authorization": {"Bearer sk-secret-one", "Bearer sk-secret-one"}}, "", identity.ErrTwoCredentials},
		{"two keys", header{"X-Api-Key": {"sk-secret-one", ""}}, "", identity.ErrTwoCredentials},
		{"a gateway key", header{"Authorization": {"Bearer " + valid}}, "", identity.ErrUnauthenticated},
		{"one mistyped", header{"Authorization": {"Bearer " + mistyped}}, "", identity.ErrUnauthenticated},
		{"without its scheme", header{"Authorization": {valid}}, "", identity.ErrUnauthenticated},
		{"in another text", header{"Authorization": {"Bearer a" + valid + "b"}}, "", identity.ErrUnauthenticated},
		{"as x-api-key", header{"X-Api-Key": {valid}}, "", identity.ErrUnauthenticated},
		{"as agentgate-key", header{"Agentgate-Key": {valid}, "Authorization": {"Bearer sk-secret-one"}}, "", identity.ErrUnauthenticated},
		{"beside another", header{"X-Api-Key": {valid}, "Authorization": {"Bearer sk-secret-one"}}, "", identity.ErrUnauthenticated},
		{"as a password", header{"Authorization": {"Basic " + basic("x:"+valid)}}, "", identity.ErrUnauthenticated},
		{"as a password, unpadded", header{"Authorization": {"BASIC  " + strings.TrimRight(basic("ab:"+valid), "=")}}, "", identity.ErrUnauthenticated},
	} {
		if got, err := p.Caller(http.Header(c.h)); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
	other, err := identity.NewPseudonyms([32]byte{2}).Caller(http.Header{"X-Api-Key": {"sk-secret-one"}})
	if err != nil || other == one {
		t.Errorf("under another key: %q, %v", other, err)
	}
}
