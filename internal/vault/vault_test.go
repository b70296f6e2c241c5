package vault_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var bearer = vault.Form{Type: vault.TypeBearer}

var bearerPerUser = vault.Form{Type: vault.TypeBearer, PerUser: true}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t *testing.T, folder string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func load(t *testing.T, s vault.Store, key string) *vault.Vault {
	t.Helper()
	kek, err := vault.ParseKEK(strings.Repeat(key, 64))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Load(t.Context(), s, kek)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func set(t *testing.T, v *vault.Vault, ref vault.Ref, text string) {
	t.Helper()
	if err := v.Set(t.Context(), ref, vault.Form{}, secret.New(text), noon); err != nil {
		t.Fatal(err)
	}
}

// sent returns what a request carries once the credential is on it.
func sent(t *testing.T, v *vault.Vault, ref vault.Ref, form vault.Form) string {
	t.Helper()
	c, err := v.Open(t.Context(), ref, form)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodGet, "http://upstream.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(r)
	return r.Header.Get("Authorization")
}

func TestUsersAndShared(t *testing.T) {
	v := load(t, openStore(t, t.TempDir()), "0")
	set(t, v, vault.Ref{Service: "github"}, "of-all")
	set(t, v, vault.Ref{Service: "github", User: "alice"}, "of-alice")
	set(t, v, vault.Ref{Service: "jira", User: "alice"}, "jira-of-alice")
	for _, c := range []struct {
		service, user string
		form          vault.Form
		want          string
		err           error
	}{
		{"github", "", bearer, "of-all", nil},
		{"github", "alice", bearer, "of-all", nil},
		{"github", "bob", bearer, "of-all", nil},
		{"github", "alice", bearerPerUser, "of-alice", nil},
		{"github", "bob", bearerPerUser, "", vault.ErrMissing},
		{"github", "Alice", bearerPerUser, "", vault.ErrMissing},
		{"github", "", bearerPerUser, "", vault.ErrMissing},
		{"jira", "alice", bearer, "", vault.ErrMissing},
		{"jira", "alice", bearerPerUser, "jira-of-alice", nil},
		{"none", "", bearer, "", vault.ErrMissing},
	} {
		ref := vault.Ref{Service: c.service, User: c.user}
		credential, err := v.Open(t.Context(), ref, c.form)
		if !errors.Is(err, c.err) {
			t.Errorf("%v, %v: error is %v, want %v", ref, c.form, err, c.err)
		}
		if c.err != nil {
			if credential != (vault.Credential{}) {
				t.Errorf("%v, %v: a credential came with the error", ref, c.form)
			}
			continue
		}
		if got := sent(t, v, ref, c.form); got != "Bearer "+c.want {
			t.Errorf("%v, %v: %q", ref, c.form, got)
		}
	}
	if c, err := v.Open(t.Context(), vault.Ref{Service: "none"}, vault.Form{Type: vault.TypeNone}); err != nil || c != (vault.Credential{}) {
		t.Errorf("of type none: %v", err)
	}
	if _, err := v.Open(t.Context(), vault.Ref{Service: "github"}, vault.Form{Type: "oauth9"}); !errors.Is(err, vault.ErrUnfit) {
		t.Errorf("of a type that is not known: %v", err)
	}
}

func TestSetReplacesAndRemoveRemoves(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	v, other := load(t, s, "0"), load(t, openStore(t, folder), "0")
	ref := vault.Ref{Service: "github"}
	set(t, v, ref, "one")
	set(t, other, ref, "two") // has not seen the first
	if got := sent(t, other, ref, bearer); got != "Bearer two" {
		t.Errorf("after the second set: %s", got)
	}
	if got := sent(t, v, ref, bearer); got != "Bearer one" {
		t.Errorf("before a reload: %s", got)
	}
	if err := v.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sent(t, v, ref, bearer); got != "Bearer two" {
		t.Errorf("after a reload: %s", got)
	}
	if err := vault.Remove(t.Context(), s, ref); err != nil {
		t.Fatal(err)
	}
	if err := other.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(t.Context(), ref, bearer); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("after its removal: %v", err)
	}
	if err := vault.Remove(t.Context(), s, ref); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("removing it again: %v", err)
	}
	if keys, err := s.DataKeys(t.Context()); err != nil || len(keys) != 0 {
		t.Errorf("%d data keys, %v", len(keys), err)
	}
}

func TestEntries(t *testing.T) {
	s := openStore(t, t.TempDir())
	v := load(t, s, "0")
	for _, ref := range []vault.Ref{{Service: "b"}, {Service: "a", User: "u"}, {Service: "a"}} {
		set(t, v, ref, "canary")
	}
	want := []vault.Entry{
		{Ref: vault.Ref{Service: "a"}, Kind: vault.KindSecret, UpdatedAt: noon},
		{Ref: vault.Ref{Service: "a", User: "u"}, Kind: vault.KindSecret, UpdatedAt: noon},
		{Ref: vault.Ref{Service: "b"}, Kind: vault.KindSecret, UpdatedAt: noon},
	}
	got, err := vault.Entries(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestSecretsThatCannotBe(t *testing.T) {
	v := load(t, openStore(t, t.TempDir()), "0")
	ref := vault.Ref{Service: "s"}
	for _, c := range []struct {
		form vault.Form
		text string
		ok   bool
	}{
		{vault.Form{}, "", false},
		{vault.Form{}, "canary\n", false},
		{vault.Form{}, "canary\r\nX-Evil: 1", false},
		{vault.Form{}, "canary\x00", false},
		{vault.Form{}, "canary\x7f", false},
		{vault.Form{}, "canary\twith tab", false},
		{vault.Form{}, "-----BEGIN-----\ncanary", false},
		{vault.Form{}, " canary with spaces ü", true},
		{vault.Form{Type: vault.TypeHeader, Name: "X"}, "-----BEGIN-----\ncanary", false},
		{vault.Form{Type: vault.TypeBasic}, "user:can\nary", false},
		{vault.Form{Type: vault.TypeQuery, Name: "q"}, "-----BEGIN-----\ncanary", true},
		{vault.Form{Type: vault.TypeQuery, Name: "q"}, "", false},
		{vault.Form{Type: vault.TypeBasic}, "canary", false},
		{vault.Form{Type: vault.TypeBasic}, "user:canary", true},
		{vault.Form{Type: vault.TypeBearer}, "canary", true},
		{vault.Form{Type: "oauth9"}, "canary", false},
	} {
		err := v.Set(t.Context(), ref, c.form, secret.New(c.text), noon)
		if c.ok && err != nil || !c.ok && !errors.Is(err, vault.ErrUnfit) {
			t.Errorf("%q as %q: %v", c.text, c.form.Type, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
	// Secrets that were set before the service changed its form.
	query := vault.Form{Type: vault.TypeQuery, Name: "q"}
	if err := v.Set(t.Context(), ref, query, secret.New("canary\r\nX-Evil: 1"), noon); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Open(t.Context(), ref, bearer); !errors.Is(err, vault.ErrUnfit) || strings.Contains(err.Error(), "canary") {
		t.Errorf("a header with a line end in it: %v", err)
	}
	set(t, v, ref, "canary")
	if _, err := v.Open(t.Context(), ref, vault.Form{Type: vault.TypeBasic}); !errors.Is(err, vault.ErrUnfit) || strings.Contains(err.Error(), "canary") {
		t.Errorf("a basic credential without a colon: %v", err)
	}
}

// rows is a store whose credentials a test has tampered with.
type rows struct {
	vault.Store
	credentials []store.Credential
}

func (r rows) Credentials(context.Context) ([]store.Credential, error) { return r.credentials, nil }

// TestRowsThatWereMoved: a sealed text that stands in any other place does not
// open there.
func TestRowsThatWereMoved(t *testing.T) {
	s := openStore(t, t.TempDir())
	v := load(t, s, "0")
	set(t, v, vault.Ref{Service: "github", User: "alice"}, "first")
	set(t, v, vault.Ref{Service: "github", User: "alice"}, "second")
	set(t, v, vault.Ref{Service: "github", User: "bob"}, "of-bob")
	all, err := s.Credentials(t.Context())
	if err != nil || len(all) != 2 || all[0].User != "alice" || all[0].Version != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	alice := all[0]
	for name, move := range map[string]func(c *store.Credential){
		"nowhere":            func(*store.Credential) {},
		"to another service": func(c *store.Credential) { c.Service = "gitlab" },
		"to another user":    func(c *store.Credential) { c.User = "bob" },
		"to the shared":      func(c *store.Credential) { c.User = "" },
		"to version 1":       func(c *store.Credential) { c.Version = 1 },
		"to version 3":       func(c *store.Credential) { c.Version = 3 },
		"over a border":      func(c *store.Credential) { c.Service, c.User = "githuba", "lice" },
	} {
		moved := alice
		move(&moved)
		ref := vault.Ref{Service: moved.Service, User: moved.User}
		form := bearerPerUser
		form.PerUser = moved.User != ""
		_, err := load(t, rows{s, []store.Credential{moved}}, "0").Open(t.Context(), ref, form)
		if same := moved.User == alice.User && moved.Service == alice.Service && moved.Version == alice.Version; same {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errors.Is(err, vault.ErrCorrupt) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	// Another field is no credential at all.
	field := alice
	field.Field = "refresh_token"
	if _, err := load(t, rows{s, []store.Credential{field}}, "0").Open(t.Context(), vault.Ref{Service: "github", User: "alice"}, bearerPerUser); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("to another field: %v", err)
	}
}

// TestEveryBitCounts flips each bit of a sealed row, its key number included,
// and cuts it at every length.
func TestEveryBitCounts(t *testing.T) {
	s := openStore(t, t.TempDir())
	set(t, load(t, s, "0"), vault.Ref{Service: "github"}, "canary")
	all, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	good := all[0].Sealed
	try := func(what string, sealed []byte) {
		bad := all[0]
		bad.Sealed = sealed
		_, err := load(t, rows{s, []store.Credential{bad}}, "0").Open(t.Context(), vault.Ref{Service: "github"}, bearer)
		if !errors.Is(err, vault.ErrCorrupt) {
			t.Errorf("%s: error is %v", what, err)
		}
	}
	for bit := range 8 * len(good) {
		flipped := append([]byte(nil), good...)
		flipped[bit/8] ^= 1 << (bit % 8)
		try(fmt.Sprint("bit ", bit), flipped)
	}
	for n := range good {
		try(fmt.Sprint(n, " bytes"), good[:n])
	}
	try("a byte more", append(append([]byte(nil), good...), 0))
}

func TestAnotherVaultKeyIsNamed(t *testing.T) {
	s := openStore(t, t.TempDir())
	set(t, load(t, s, "0"), vault.Ref{Service: "github"}, "canary")
	kek, err := vault.ParseKEK(strings.Repeat("1", 64))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := vault.Load(t.Context(), s, kek); v != nil || !errors.Is(err, vault.ErrWrongKEK) {
		t.Errorf("%v, %v", v, err)
	}
}

// wrapped is a store whose data keys a test has tampered with.
type wrapped struct {
	vault.Store
	keys []store.DataKey
}

func (w wrapped) DataKeys(context.Context) ([]store.DataKey, error) { return w.keys, nil }

// TestDataKeysThatWereTouched: a data key opens only as what it was wrapped as.
// A reload that meets one keeps what the vault had.
func TestDataKeysThatWereTouched(t *testing.T) {
	s := openStore(t, t.TempDir())
	v := load(t, s, "0")
	set(t, v, vault.Ref{Service: "github"}, "canary")
	keys, err := s.DataKeys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Fatalf("%v, %v", keys, err)
	}
	kek, err := vault.ParseKEK(strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	for name, touch := range map[string]func(k *store.DataKey){
		"another tenant": func(k *store.DataKey) { k.Tenant = "acme" },
		"another number": func(k *store.DataKey) { k.Number = 2 },
		"a bit":          func(k *store.DataKey) { k.Wrapped = append([]byte{k.Wrapped[0] ^ 1}, k.Wrapped[1:]...) },
		"cut":            func(k *store.DataKey) { k.Wrapped = k.Wrapped[:5] },
	} {
		k := keys[0]
		touch(&k)
		if _, err := vault.Load(t.Context(), wrapped{s, []store.DataKey{k}}, kek); !errors.Is(err, vault.ErrCorrupt) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// failing is a store that can be made to fail.
type failing struct {
	vault.Store
	err error
}

func (f *failing) Credentials(ctx context.Context) ([]store.Credential, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Credentials(ctx)
}

func TestAFailedReloadKeepsWhatThereWas(t *testing.T) {
	s := &failing{Store: openStore(t, t.TempDir())}
	v := load(t, s, "0")
	ref := vault.Ref{Service: "github"}
	set(t, v, ref, "canary")
	s.err = errors.New("the disk is gone")
	if err := v.Reload(t.Context()); !errors.Is(err, s.err) {
		t.Errorf("error is %v", err)
	}
	if got := sent(t, v, ref, bearer); got != "Bearer canary" {
		t.Errorf("after a failed reload: %s", got)
	}
}

// TestManySetAtOnce: two processes that set the same and other credentials at
// the same moment, on a first start, lose nothing and agree on the data key.
func TestManySetAtOnce(t *testing.T) {
	folder := t.TempDir()
	a, b := load(t, openStore(t, folder), "0"), load(t, openStore(t, folder), "0")
	var wg sync.WaitGroup
	for i := range 6 {
		v := []*vault.Vault{a, b}[i%2]
		wg.Go(func() {
			for _, ref := range []vault.Ref{{Service: "same"}, {Service: "own", User: fmt.Sprint(i)}} {
				if err := v.Set(t.Context(), ref, vault.Form{}, secret.New(fmt.Sprint("of-", i)), noon); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	fresh := load(t, openStore(t, folder), "0")
	for i := range 6 {
		ref := vault.Ref{Service: "own", User: fmt.Sprint(i)}
		if got, want := sent(t, fresh, ref, bearerPerUser), fmt.Sprint("Bearer of-", i); got != want {
			t.Errorf("%v: %s", ref, got)
		}
	}
	if got := sent(t, fresh, vault.Ref{Service: "same"}, bearer); !strings.HasPrefix(got, "Bearer of-") {
		t.Errorf("the contended one is %s", got)
	}
}

// TestNobodyGetsAnothers: many goroutines open many users' credentials while
// they change, and each request carries its own user's and no other.
func TestNobodyGetsAnothers(t *testing.T) {
	v := load(t, openStore(t, t.TempDir()), "0")
	const users, rounds = 8, 200
	for u := range users {
		set(t, v, vault.Ref{Service: "s", User: fmt.Sprint(u)}, fmt.Sprint("of-", u))
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range rounds {
				u := (g + i) % users
				c, err := v.Open(t.Context(), vault.Ref{Service: "s", User: fmt.Sprint(u)}, bearerPerUser)
				if err != nil {
					t.Error(err)
					return
				}
				r := &http.Request{}
				c.Apply(r)
				if got := r.Header["Authorization"]; len(got) != 1 || got[0] != fmt.Sprint("Bearer of-", u) {
					t.Errorf("user %d sent %q", u, got)
				}
			}
		})
	}
	for range 20 {
		if err := v.Reload(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func TestNothingReadableIsStored(t *testing.T) {
	const canary = "canary-5f2e9a"
	folder := t.TempDir()
	s := openStore(t, folder)
	set(t, load(t, s, "0"), vault.Ref{Service: "github"}, canary)
	if err := s.Close(); err != nil { // folds the write-ahead file in
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	named := false
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		named = named || strings.Contains(string(b), "github")
		if strings.Contains(string(b), canary) {
			t.Errorf("%s holds the secret", f)
		}
	}
	if !named {
		t.Error("the row is in none of the files that were searched")
	}
}
