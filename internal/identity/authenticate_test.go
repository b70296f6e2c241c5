package identity_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
)

// callers is a directory and the texts of its keys.
func callers(t testing.TB) (d *identity.Directory, text map[string]string) {
	t.Helper()
	text = make(map[string]string)
	made := func(k identity.Key) identity.Key {
		s, digest := identity.NewKey()
		text[k.ID], k.Digest = s.Reveal(), digest
		return k
	}
	d = directory(t,
		made(identity.Key{ID: "one"}), made(identity.Key{ID: "two"}),
		made(identity.Key{ID: "old", NotAfter: noon}),
		made(identity.Key{ID: "new", NotBefore: noon.Add(time.Second)}),
	)
	stranger, _ := identity.NewKey()
	text["unknown"] = stranger.Reveal()
	bad := []byte(text["one"])
	bad[len(bad)-1] ^= 1
	text["mistyped"] = string(bad)
	return d, text
}

func TestAuthenticate(t *testing.T) {
	d, text := callers(t)
	type lines map[string][]string
	for _, c := range []struct {
		name string
		h    lines
		want string
		err  error
	}{
		{"nothing", lines{}, "", identity.ErrUnauthenticated},
		{"bearer", lines{"Authorization": {"Bearer <one>"}}, "one", nil},
		{"lower case", lines{"Authorization": {"bearer <one>"}}, "one", nil},
		{"upper case", lines{"Authorization": {"BEARER <one>"}}, "one", nil},
		{"two spaces", lines{"Authorization": {"Bearer  <one>"}}, "one", nil},
		{"space around", lines{"Authorization": {" Bearer <one> \t"}}, "one", nil},
		{"tab", lines{"Authorization": {"Bearer\t<one>"}}, "", identity.ErrUnauthenticated},
		{"space and tab", lines{"Authorization": {"Bearer \t<one>"}}, "", identity.ErrUnauthenticated},
		{"no space", lines{"Authorization": {"Bearer<one>"}}, "", identity.ErrUnauthenticated},
		{"scheme alone", lines{"Authorization": {"Bearer"}}, "", identity.ErrUnauthenticated},
		{"scheme and space", lines{"Authorization": {"Bearer "}}, "", identity.ErrUnauthenticated},
		{"extra word", lines{"Authorization": {"Bearer <one> extra"}}, "", identity.ErrUnauthenticated},
		{"comma-joined", lines{"Authorization": {"Bearer <one>, Bearer junk"}}, "", identity.ErrUnauthenticated},
		{"no scheme", lines{"Authorization": {"<one>"}}, "", identity.ErrUnauthenticated},
		{"another scheme", lines{"Authorization": {"Basic <one>"}}, "", identity.ErrUnauthenticated},
		{"empty line", lines{"Authorization": {""}}, "", identity.ErrUnauthenticated},
		{"a letter that folds to ASCII", lines{"Authorization": {"Bea\u212aer <one>"}}, "", identity.ErrUnauthenticated},
		{"quoted", lines{"Authorization": {`Bearer "<one>"`}}, "", identity.ErrUnauthenticated},
		{"x-api-key", lines{"X-Api-Key": {"<one>"}}, "one", nil},
		{"x-api-key with a scheme", lines{"X-Api-Key": {"Bearer <one>"}}, "", identity.ErrUnauthenticated},
		{"own header", lines{"Agentgate-Key": {"<two>"}}, "two", nil},
		{"another header", lines{"X-Key": {"<one>"}}, "", identity.ErrUnauthenticated},

		{"unknown", lines{"X-Api-Key": {"<unknown>"}}, "", identity.ErrUnauthenticated},
		{"mistyped", lines{"X-Api-Key": {"<mistyped>"}}, "", identity.ErrUnauthenticated},
		{"expired", lines{"X-Api-Key": {"<old>"}}, "", identity.ErrUnauthenticated},
		{"not yet", lines{"X-Api-Key": {"<new>"}}, "", identity.ErrUnauthenticated},

		{"junk beside", lines{"Authorization": {"Bearer <one>"}, "X-Api-Key": {"sk-ant-1"}}, "one", nil},
		{"junk before", lines{"Authorization": {"Bearer sk-1"}, "X-Api-Key": {"<one>"}}, "one", nil},
		{"another scheme before", lines{"Authorization": {"Basic eDp5"}, "Agentgate-Key": {"<one>"}}, "one", nil},
		{"expired beside", lines{"Authorization": {"Bearer <old>"}, "X-Api-Key": {"<one>"}}, "one", nil},
		{"unknown beside", lines{"Authorization": {"Bearer <one>"}, "Agentgate-Key": {"<unknown>"}}, "one", nil},
		{"the same thrice", lines{"Authorization": {"Bearer <one>"}, "X-Api-Key": {"<one>"}, "Agentgate-Key": {"<one>"}}, "one", nil},
		{"two lines of the same", lines{"X-Api-Key": {"<one>", "<one>"}}, "one", nil},

		{"two in two headers", lines{"Authorization": {"Bearer <one>"}, "X-Api-Key": {"<two>"}}, "", identity.ErrTwoKeys},
		{"two in the other two", lines{"X-Api-Key": {"<one>"}, "Agentgate-Key": {"<two>"}}, "", identity.ErrTwoKeys},
		{"two in first and last", lines{"Authorization": {"Bearer <two>"}, "Agentgate-Key": {"<one>"}}, "", identity.ErrTwoKeys},
		{"two lines of one header", lines{"X-Api-Key": {"<one>", "<two>"}}, "", identity.ErrTwoKeys},
		{"two, then the first again", lines{"X-Api-Key": {"<one>", "<two>", "<one>"}}, "", identity.ErrTwoKeys},

		{"two Authorization lines", lines{"Authorization": {"Bearer <one>", "junk"}}, "", identity.ErrTwoHeaders},
		{"the same Authorization twice", lines{"Authorization": {"Bearer <one>", "Bearer <one>"}}, "", identity.ErrTwoHeaders},
		{"two Authorization lines, the key in the second", lines{"Authorization": {"junk", "Bearer <one>"}}, "", identity.ErrTwoHeaders},
		{"two keys in them", lines{"Authorization": {"Bearer <one>", "Bearer <two>"}}, "", identity.ErrTwoHeaders},
		{"two Authorization lines and no valid key", lines{"Authorization": {"Bearer <unknown>", "Bearer <old>"}, "X-Api-Key": {"junk"}}, "", identity.ErrUnauthenticated},
		{"two Authorization lines of junk", lines{"Authorization": {"", ""}, "X-Api-Key": {"<one>"}}, "", identity.ErrTwoHeaders},
	} {
		h := make(http.Header)
		for name, values := range c.h {
			for _, v := range values {
				for id, s := range text {
					v = strings.ReplaceAll(v, "<"+id+">", s)
				}
				h[name] = append(h[name], v)
			}
		}
		s, err := d.Authenticate(h, noon)
		got := ""
		if s != nil {
			got = s.Key.ID
		}
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
}

// TestKeysThatShareABeginning: nothing is found by less than the whole key.
func TestKeysThatShareABeginning(t *testing.T) {
	d, text := callers(t)
	for i := 4; i < len(text["one"]); i++ {
		mixed := text["one"][:i] + text["two"][i:]
		if mixed == text["one"] || mixed == text["two"] {
			continue
		}
		if s, err := d.Authenticate(http.Header{"X-Api-Key": {mixed}}, noon); err == nil {
			t.Fatalf("%d characters of one key and the rest of another are %s", i, s.Key.ID)
		}
	}
}

func TestAuthenticationAllocatesNothing(t *testing.T) {
	d, text := callers(t)
	h := http.Header{"Authorization": {"Bearer " + text["one"]}, "X-Api-Key": {"sk-1"}}
	n := testing.AllocsPerRun(100, func() {
		if _, err := d.Authenticate(h, noon); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzAuthenticate(f *testing.F) {
	d, text := callers(f)
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer " + text["one"], "bEaReR   " + text["two"], text["one"], "Bearer\t" + text["one"], "Bearer \x00"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, authorization, key string) {
		s, err := d.Authenticate(http.Header{"Authorization": {authorization}, "X-Api-Key": {key}}, noon)
		switch {
		case (s == nil) == (err == nil):
			t.Fatalf("%v and %v", s, err)
		case s != nil && !strings.Contains(authorization+"\n"+key, text[s.Key.ID]):
			t.Fatalf("%q and %q are %s", authorization, key, s.Key.ID)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	d, text := callers(b)
	h := http.Header{"Authorization": {"Bearer " + text["one"]}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Authenticate(h, noon); err != nil {
			b.Fatal(err)
		}
	}
}
