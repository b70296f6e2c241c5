package vault_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// tenants are those under whose data keys the rows of s are sealed, in the order of
// service and user.
func tenants(t *testing.T, s vault.Store) (list []string) {
	t.Helper()
	rows, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		list = append(list, r.Tenant)
	}
	return list
}

// TestEachPersonHasADataKey of his own, one for all that he has, and what is shared
// has another. With the last of a person's credentials the key is gone.
func TestEachPersonHasADataKey(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	v := load(t, s, "0")
	for _, ref := range []vault.Ref{{Service: "a"}, {Service: "a", User: "alice"}, {Service: "b", User: "alice"}, {Service: "b", User: "bob"}} {
		set(t, v, ref, "of-"+ref.User)
	}
	if got, want := tenants(t, s), []string{"", "human:alice", "human:alice", "human:bob"}; !slices.Equal(got, want) {
		t.Errorf("sealed under %q, want %q", got, want)
	}
	keysOf := func() (list []string) {
		keys, err := s.DataKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			list = append(list, fmt.Sprint(k.Tenant, " ", k.Number))
		}
		return list
	}
	if got, want := keysOf(), []string{" 1", "human:alice 1", "human:bob 1"}; !slices.Equal(got, want) {
		t.Errorf("the keys are %q, want %q", got, want)
	}
	other, idle := load(t, openStore(t, folder), "0"), load(t, s, "0") // which know alice's key that is gone in a moment
	for _, service := range []string{"a", "b"} {
		if err := vault.Remove(t.Context(), s, vault.Ref{Service: service, User: "alice"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := keysOf(), []string{" 1", "human:bob 1"}; !slices.Equal(got, want) {
		t.Errorf("without alice the keys are %q, want %q", got, want)
	}
	set(t, other, vault.Ref{Service: "b", User: "alice"}, "again")
	if err := idle.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range []*vault.Vault{load(t, s, "0"), idle} { // of whom idle knows another key by that number
		if got := sent(t, v, vault.Ref{Service: "b", User: "alice"}, bearerPerUser); got != "Bearer again" {
			t.Errorf("alice sends %q", got)
		}
	}
}

// TestRowsOfAnotherPerson: a row does not open under anybody's data key but that of the
// one it is of, whether it was moved there with its key's name or without, or made there
// by somebody who has that other key.
func TestRowsOfAnotherPerson(t *testing.T) {
	s := openStore(t, t.TempDir())
	v := load(t, s, "0")
	set(t, v, vault.Ref{Service: "s", User: "alice"}, "of-alice")
	set(t, v, vault.Ref{Service: "s", User: "bob"}, "of-bob")
	set(t, v, vault.Ref{Service: "s"}, "of-all")
	all, err := s.Credentials(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	shared, alice, bob := all[0], all[1], all[2]
	swap := func(of, with store.Credential, tenant string) store.Credential {
		of.Sealed, of.Tenant = with.Sealed, tenant
		return of
	}
	for name, row := range map[string]store.Credential{
		"bob's as alice's":                    swap(alice, bob, alice.Tenant),
		"bob's as alice's, with his key":      swap(alice, bob, bob.Tenant),
		"all's as alice's":                    swap(alice, shared, alice.Tenant),
		"all's as alice's, with its key":      swap(alice, shared, shared.Tenant),
		"alice's as all's":                    swap(shared, alice, shared.Tenant),
		"alice's as all's, with her key":      swap(shared, alice, alice.Tenant),
		"alice's own, said to be bob's":       swap(alice, alice, bob.Tenant),
		"alice's own, said to be all's":       swap(alice, alice, ""),
		"alice's own, of one who is not here": swap(alice, alice, "human:carol"),
	} {
		form := bearerPerUser
		form.PerUser = row.User != ""
		if c, err := load(t, rows{s, []store.Credential{row}}, "0").Open(t.Context(), vault.Ref{Service: "s", User: row.User}, form); !errors.Is(err, vault.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	if err := v.SealUnder(t.Context(), vault.Ref{Service: "t", User: "alice"}, "secret", "human:bob", "forged with bob's key", noon); err != nil {
		t.Fatal(err)
	}
	if err := v.SealUnder(t.Context(), vault.Ref{Service: "t"}, "secret", "human:bob", "forged with bob's key", noon); err != nil {
		t.Fatal(err)
	}
	for user, form := range map[string]vault.Form{"alice": bearerPerUser, "": bearer} {
		if _, err := v.Open(t.Context(), vault.Ref{Service: "t", User: user}, form); !errors.Is(err, vault.ErrCorrupt) {
			t.Errorf("a forged one of %q: %v", user, err)
		}
	}
}

// ofBefore is a store as the program left it that had one data key for everybody.
func ofBefore(t *testing.T) (*store.Store, vault.KEK) {
	t.Helper()
	folder := t.TempDir()
	packed, err := os.Open("testdata/before-owners/state.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, store.FileName), b, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/before-owners/vault-key")
	if err != nil {
		t.Fatal(err)
	}
	kek, err := vault.ParseKEK(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return openStore(t, folder), kek
}

// TestWhatAnEarlierProgramSealed opens, can be set again, and is sealed anew.
func TestWhatAnEarlierProgramSealed(t *testing.T) {
	s, kek := ofBefore(t)
	form := newIDP(t).form(true)
	form.OAuth2.TokenURL = "https://idp.example/token"
	opens := func(bobs string) {
		t.Helper()
		v := must1(t)(vault.Load(t.Context(), s, kek))
		for _, c := range []struct {
			service, user, host, want string
		}{{"github", "alice", "api.example", "of-alice"}, {"github", "bob", "api.example", bobs}, {"search", "", "s.example", "of-all"}} {
			form := vault.Form{Type: vault.TypeBearer, PerUser: c.user != "", Host: c.host}
			got, err := v.Open(t.Context(), vault.Ref{Service: c.service, User: c.user}, form)
			if err != nil {
				t.Errorf("%s of %q: %v", c.service, c.user, err)
				continue
			}
			r, err := http.NewRequest(http.MethodGet, "https://"+c.host, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Apply(r); err != nil || r.Header.Get("Authorization") != "Bearer "+c.want {
				t.Errorf("%s of %q: %q, %v", c.service, c.user, r.Header.Get("Authorization"), err)
			}
		}
	}
	opens("of-bob-2")
	if err := must1(t)(vault.Load(t.Context(), s, kek)).Set(t.Context(), vault.Ref{Service: "github", User: "bob"}, vault.Form{Type: vault.TypeBearer, Host: "api.example"}, secret.New("of-bob-3"), noon); err != nil {
		t.Fatal(err)
	}
	opens("of-bob-3")
	if got, want := tenants(t, s), []string{"", "human:bob", "", "", ""}; !slices.Equal(got, want) {
		t.Errorf("after one was set they are sealed under %q, want %q", got, want)
	}
	before, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{2, 0} {
		if done, err := vault.Reseal(t.Context(), s, kek, noon); done != want || err != nil {
			t.Errorf("%d: %d sealed anew, want %d; %v", i, done, want, err)
		}
	}
	if got, want := tenants(t, s), []string{"human:alice", "human:bob", "", "human:alice", ""}; !slices.Equal(got, want) {
		t.Errorf("sealed anew they are under %q, want %q", got, want)
	}
	opens("of-bob-3")
	after, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range after {
		if a, b := after[i], before[i]; a.Version != b.Version || !a.UpdatedAt.Equal(b.UpdatedAt) || a.Host != b.Host || a.State != b.State {
			t.Errorf("%s of %s is another one now: %+v, %+v", a.Service, a.User, b, a)
		}
	}
}

// cutShort is a store whose process dies with the nth change: before it, or behind it.
type cutShort struct {
	*store.Store
	left   int
	behind bool
}

var errKilled = errors.New("killed")

func (c *cutShort) cut(do func() error) error {
	if c.left--; c.left > 0 {
		return do()
	}
	if c.left == 0 && c.behind {
		if err := do(); err != nil {
			return err
		}
	}
	return errKilled
}

func (c *cutShort) AddDataKey(ctx context.Context, k store.DataKey) error {
	return c.cut(func() error { return c.Store.AddDataKey(ctx, k) })
}

func (c *cutShort) ResealCredential(ctx context.Context, was string, row store.Credential, by store.DataKey) error {
	return c.cut(func() error { return c.Store.ResealCredential(ctx, was, row, by) })
}

// TestBrokenOffWhileSealingAnew: wherever it ends, all opens, and another one does the
// rest.
func TestBrokenOffWhileSealingAnew(t *testing.T) {
	users := []string{"alice", "bob", "carol"}
	for at := 1; at <= 2*len(users); at++ {
		for _, behind := range []bool{false, true} {
			s := openStore(t, t.TempDir())
			v := load(t, s, "0")
			for _, u := range users {
				if err := v.SetAsBefore(t.Context(), vault.Ref{Service: "s", User: u}, "of-"+u, noon); err != nil {
					t.Fatal(err)
				}
			}
			opens := func() {
				t.Helper()
				fresh := load(t, s, "0")
				for _, u := range users {
					if got := sent(t, fresh, vault.Ref{Service: "s", User: u}, bearerPerUser); got != "Bearer of-"+u {
						t.Errorf("killed at change %d: %s sends %q", at, u, got)
					}
				}
			}
			done, err := vault.Reseal(t.Context(), &cutShort{s, at, behind}, kekOf(t, "0"), noon)
			if !errors.Is(err, errKilled) {
				t.Fatalf("killed at change %d: %v", at, err)
			}
			opens()
			if behind && at%2 == 0 {
				done++ // it was done, and nobody was told
			}
			rest, err := vault.Reseal(t.Context(), s, kekOf(t, "0"), noon)
			if err != nil || done+rest != len(users) {
				t.Errorf("killed at change %d: %d and then %d, %v", at, done, rest, err)
			}
			opens()
		}
	}
}

// TestWhatDoesNotOpenIsPassedOver, and told.
func TestWhatDoesNotOpenIsPassedOver(t *testing.T) {
	s := openStore(t, t.TempDir())
	v := load(t, s, "0")
	for _, u := range []string{"alice", "bob", "carol"} {
		if err := v.SetAsBefore(t.Context(), vault.Ref{Service: "s", User: u}, "of-"+u, noon); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all[1].Sealed = append([]byte{}, all[1].Sealed...)
	all[1].Sealed[20] ^= 1
	done, err := vault.Reseal(t.Context(), tampered{s, all}, kekOf(t, "0"), noon)
	if done != 2 || !errors.Is(err, vault.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), `"bob"`) || strings.Contains(fmt.Sprint(err), "alice") {
		t.Errorf("%d, %v", done, err)
	}
}

// tampered is a store whose rows are read as others than they are.
type tampered struct {
	*store.Store
	rows []store.Credential
}

func (s tampered) Credentials(context.Context) ([]store.Credential, error) { return s.rows, nil }

// TestATokenIsNotLostWhileItIsSealedAnew: what becomes of the rows and keys while the
// token endpoint is asked takes nothing from the new token, for which the old one was
// spent.
func TestATokenIsNotLostWhileItIsSealedAnew(t *testing.T) {
	for name, meanwhile := range map[string]func(s *store.Store) error{
		"sealed anew, of an earlier program": func(s *store.Store) error {
			done, err := vault.Reseal(context.Background(), s, kekOf(t, "0"), noon)
			if err == nil && done != 1 {
				err = fmt.Errorf("%d were", done)
			}
			return err
		},
		"its key wrapped anew": func(s *store.Store) error { // by the same key, as a rewrap and one back would
			keys, err := s.DataKeys(context.Background())
			if err != nil {
				return err
			}
			for _, k := range keys {
				fresh := k
				fresh.Wrapper = "between"
				if err := s.RewrapDataKey(context.Background(), k.Wrapper, fresh); err != nil {
					return err
				}
			}
			_, err = vault.Rewrap(context.Background(), s, kekOf(t, "0"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, folder := newIDP(t), t.TempDir()
			s := openStore(t, folder)
			b := newBank(t, s, clockwork.NewFakeClockAt(noon))
			if err := b.vault.SetClient(t.Context(), "mail", p.form(true).OAuth2, secret.New("client-secret"), noon); err != nil {
				t.Fatal(err)
			}
			var err error
			if strings.Contains(name, "earlier") {
				err = b.vault.SetRefreshAsBefore(t.Context(), alice, p.form(true), "r0", noon)
			} else {
				err = b.vault.SetRefresh(t.Context(), alice, p.form(true), secret.New("r0"), noon)
			}
			if err != nil {
				t.Fatal(err)
			}
			operator := openStore(t, folder)
			p.set(func() {
				p.before = func(http.ResponseWriter) bool {
					p.before = nil
					if err := meanwhile(operator); err != nil {
						t.Error(err)
					}
					return false
				}
			})
			b.mustSend(t, p, "a1")
			newBank(t, openStore(t, folder), b.clock).mustSend(t, p, "a1")
			b.clock.Advance(3 * 3600e9)
			b.mustSend(t, p, "a2")
			if got, want := tenants(t, s), []string{"", "human:alice"}; !slices.Equal(got, want) {
				t.Errorf("sealed under %q, want %q", got, want)
			}
			if n := p.asked(); n != 2 {
				t.Errorf("the endpoint was asked %d times", n)
			}
		})
	}
}

// TestAnAccountRemovedMeanwhile stays removed, whatever its endpoint answers.
func TestAnAccountRemovedMeanwhile(t *testing.T) {
	p, folder := newIDP(t), t.TempDir()
	b := connected(t, openStore(t, folder), p)
	operator := openStore(t, folder)
	p.set(func() {
		p.before = func(http.ResponseWriter) bool {
			p.before = nil
			if err := vault.Remove(context.Background(), operator, alice); err != nil {
				t.Error(err)
			}
			return false
		}
	})
	if got, err := b.sends(t.Context(), p); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("sends %q, %v", got, err)
	}
	if entries, err := vault.Entries(t.Context(), operator); err != nil || len(entries) != 1 || entries[0].User != "" {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestReadingAgainUnwrapsNothingTwice: there is a data key for each person, and the
// store is read anew whenever anything in it moves.
func TestReadingAgainUnwrapsNothingTwice(t *testing.T) {
	s := openStore(t, t.TempDir())
	v := load(t, s, "0")
	const users = 100
	for u := range users {
		set(t, v, vault.Ref{Service: "s", User: fmt.Sprint(u)}, "x-secret")
	}
	kek := kekOf(t, "0")
	first := testing.AllocsPerRun(3, func() {
		if _, err := vault.Load(t.Context(), s, kek); err != nil {
			t.Fatal(err)
		}
	})
	again := testing.AllocsPerRun(3, func() {
		if err := v.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if saved := (first - again) / users; saved < 5 {
		t.Errorf("reading takes %v allocations, reading again %v: %v saved for each key", first, again, saved)
	}
}
