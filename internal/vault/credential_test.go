package vault_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/vault"
)

func TestApply(t *testing.T) {
	v := load(t, openStore(t, t.TempDir()), "0")
	ref := vault.Ref{Service: "s"}
	for _, c := range []struct {
		name, text string
		form       vault.Form
		have       http.Header
		url        string
		wantHeader http.Header
		wantURL    string
	}{
		{"none", "unused", vault.Form{Type: vault.TypeNone}, http.Header{"A": {"b"}}, "http://h/p?q=1", http.Header{"A": {"b"}}, "http://h/p?q=1"},
		{"no form", "unused", vault.Form{}, nil, "http://h/p", nil, "http://h/p"},
		{"bearer", "tok en", bearer, nil, "http://h/p", http.Header{"Authorization": {"Bearer tok en"}}, "http://h/p"},
		{
			"bearer replaces", "tok", bearer, http.Header{"Authorization": {"a", "b"}, "authorization": {"c"}, "AUTHORIZATION": {"d"}, "A": {"b"}},
			"http://h/p", http.Header{"Authorization": {"Bearer tok"}, "A": {"b"}}, "http://h/p",
		},
		// The pair of RFC 7617 section 2.
		{"basic", "Aladdin:open sesame", vault.Form{Type: vault.TypeBasic}, nil, "http://h/", http.Header{"Authorization": {"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}}, "http://h/"},
		{"header", "k:1", vault.Form{Type: vault.TypeHeader, Name: "x-api-KEY"}, http.Header{"X-Api-Key": {"theirs"}}, "http://h/", http.Header{"X-Api-Key": {"k:1"}}, "http://h/"},
		{"header beside Authorization", "k", vault.Form{Type: vault.TypeHeader, Name: "X-Token"}, http.Header{"Authorization": {"a"}}, "http://h/", http.Header{"Authorization": {"a"}, "X-Token": {"k"}}, "http://h/"},
		{"query", "k", vault.Form{Type: vault.TypeQuery, Name: "key"}, nil, "http://h/p", nil, "http://h/p?key=k"},
		{"query after others", "k", vault.Form{Type: vault.TypeQuery, Name: "key"}, nil, "http://h/p?b=%7E&a=1;2&&x", nil, "http://h/p?b=%7E&a=1;2&&x&key=k"},
		{"query is encoded once", "a b+c&d=e%20f#ü/?", vault.Form{Type: vault.TypeQuery, Name: "api key"}, nil, "http://h/", nil, "http://h/?api%20key=a%20b%2Bc%26d%3De%2520f%23%C3%BC%2F%3F"},
	} {
		set(t, v, ref, c.text)
		credential, err := v.Open(t.Context(), ref, c.form)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		before, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		shared := *before
		r := &http.Request{Header: c.have, URL: before}
		credential.Apply(r)
		if d := cmp.Diff(c.wantHeader, r.Header); d != "" {
			t.Errorf("%s: header, -want +got:\n%s", c.name, d)
		}
		if got := r.URL.String(); got != c.wantURL {
			t.Errorf("%s: URL is %s, want %s", c.name, got, c.wantURL)
		}
		if *before != shared {
			t.Errorf("%s: the URL that others may hold was changed", c.name)
		}
		if c.form.Type == vault.TypeQuery {
			if got := r.URL.Query().Get(c.form.Name); got != c.text {
				t.Errorf("%s: the other side reads %q", c.name, got)
			}
		}
	}
}

func TestTheZeroCredentialDoesNothing(t *testing.T) {
	r := &http.Request{URL: &url.URL{Path: "/"}}
	vault.Credential{}.Apply(r)
	if r.Header != nil || r.URL.String() != "/" {
		t.Errorf("%v, %v", r.Header, r.URL)
	}
}

func TestNothingPrintsACredential(t *testing.T) {
	const canary = "canary-7d1f"
	v := load(t, openStore(t, t.TempDir()), "0")
	set(t, v, vault.Ref{Service: "s"}, canary)
	c, err := v.Open(t.Context(), vault.Ref{Service: "s"}, bearer)
	if err != nil {
		t.Fatal(err)
	}
	kek, err := vault.ParseKEK(strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	holder := struct{ C, hidden any }{c, c}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, x := range []any{c, &c, []vault.Credential{c}, holder, kek, &kek, v} {
			fmt.Fprintf(&out, verb+"\n", x)
		}
	}
	for _, x := range []any{c, kek, holder} {
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "c", c, "k", kek, "v", v)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "c", c, "k", kek)
	for _, needle := range []string{canary, fmt.Sprintf("%x", canary), strings.Repeat("\xab", 4), "abababab", fmt.Sprint([]byte(strings.Repeat("\xab", 4)))} {
		if strings.Contains(strings.ToLower(out.String()), needle) {
			t.Errorf("it was printed as %q", needle)
		}
	}
	if !strings.Contains(out.String(), "[redacted]") {
		t.Error("nothing was printed at all")
	}
}
