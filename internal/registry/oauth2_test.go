package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
)

func credentialOf(t *testing.T, credential string) (registry.Credential, error) {
	t.Helper()
	s, err := registry.Parse("r.yaml", []byte("version: 1\nservices:\n  s:\n    base_url: https://u.example\n    credential: "+credential+"\n"))
	if s == nil {
		t.Fatal(err)
	}
	c := s.Services["s"].Credential
	c.Pos = registry.Position{}
	return c, err
}

func TestOAuth2Credentials(t *testing.T) {
	for text, want := range map[string]registry.Credential{
		`{type: oauth2, scope: user, authorize_url: https://idp.example/a, token_url: https://idp.example/t, client_id: c}`: {
			Type: "oauth2", PerUser: true, OAuth2: &registry.OAuth2{
				Flow: "authorization_code", AuthorizeURL: "https://idp.example/a", TokenURL: "https://idp.example/t", ClientID: "c", ClientAuth: "basic",
			},
		},
		`{type: oauth2, authorize_url: http://127.0.0.1:1/a, token_url: http://127.0.0.1:1/t, client_id: c, client_auth: none, allow_private: true,
      issuer: http://127.0.0.1:1, scopes: [a, b], authorize_params: {access_type: offline}, token_params: {audience: x}}`: {
			Type: "oauth2", OAuth2: &registry.OAuth2{
				Flow: "authorization_code", AuthorizeURL: "http://127.0.0.1:1/a", TokenURL: "http://127.0.0.1:1/t", ClientID: "c", ClientAuth: "none",
				AllowPrivate: true, Issuer: "http://127.0.0.1:1", Scopes: []string{"a", "b"},
				AuthorizeParams: map[string]string{"access_type": "offline"}, TokenParams: map[string]string{"audience": "x"},
			},
		},
		`{type: oauth2, flow: client_credentials, token_url: https://idp.example/t, client_id: c, client_auth: post}`: {
			Type: "oauth2", OAuth2: &registry.OAuth2{Flow: "client_credentials", TokenURL: "https://idp.example/t", ClientID: "c", ClientAuth: "post"},
		},
	} {
		got, err := credentialOf(t, text)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n-want +got:\n%s", text, err, d)
		}
	}
}

func TestOAuth2CredentialsThatCannotBe(t *testing.T) {
	const rest = "authorize_url: https://idp.example/a, token_url: https://idp.example/t, client_id: c"
	for credential, want := range map[string]string{
		`{type: oauth2}`: "token_url is missing|client_id is missing|authorize_url is missing",
		`{type: oauth2, token_url: http://hunter2.example/t, authorize_url: https://idp.example/a, client_id: c}`:               "token_url: is http://",
		`{type: oauth2, token_url: https://idp.example/t, authorize_url: http://hunter2.example/t, client_id: c}`:               "authorize_url: is http://",
		`{type: oauth2, ` + rest + `, flow: implicit}`:                                                                          "flow: is none of authorization_code, client_credentials",
		`{type: oauth2, ` + rest + `, client_auth: hunter2}`:                                                                    "client_auth: is none of basic, post, none",
		`{type: oauth2, ` + rest + `, allow_private: hunter2}`:                                                                  "allow_private: is none of false, true",
		`{type: oauth2, ` + rest + `, authorize_params: {State: hunter2}}`:                                                      "authorize_params.State: is for the gateway to give",
		`{type: oauth2, ` + rest + `, token_params: {grant_type: hunter2}}`:                                                     "token_params.grant_type: is for the gateway to give",
		`{type: oauth2, ` + rest + `, flow: client_credentials}`:                                                                "authorize_url: is for people who connect an account",
		`{type: oauth2, flow: client_credentials, token_url: https://idp.example/t, client_id: c, scope: user}`:                 "scope: a client's own token is on nobody's behalf",
		`{type: oauth2, flow: client_credentials, token_url: https://idp.example/t, client_id: c, client_auth: none}`:           "client_auth: a client without a secret",
		`{type: oauth2, flow: client_credentials, token_url: https://idp.example/t, client_id: c, issuer: https://idp.example}`: "issuer: is for people",
		`{type: oauth2, flow: client_credentials, token_url: https://idp.example/t, client_id: c, authorize_params: {a: b}}`:    "authorize_params: is for people",
		`{type: bearer, token_params: {a: b}}`:                                                                                  "token_params: is for oauth2 credentials; this one is bearer",
	} {
		_, err := credentialOf(t, credential)
		for _, part := range strings.Split(want, "|") {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q", credential, err, part)
			}
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Count(err.Error(), "\n") != strings.Count(want, "|")) {
			t.Errorf("%s: %v", credential, err)
		}
	}
}
