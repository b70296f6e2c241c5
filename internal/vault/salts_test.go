package vault_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/store"
	"agentgw/internal/vault"
)

func parseKEK(t *testing.T, digit string) vault.KEK {
	t.Helper()
	kek, err := vault.ParseKEK(strings.Repeat(digit, 64))
	if err != nil {
		t.Fatal(err)
	}
	return kek
}

func loadSalts(t *testing.T, s vault.ParamsStore) *vault.Salts {
	t.Helper()
	salts, err := vault.LoadSalts(t.Context(), s, parseKEK(t, "0"), clockwork.NewFakeClockAt(noon))
	if err != nil {
		t.Fatal(err)
	}
	return salts
}

type salt = [vault.SaltSize]byte

func saltOf(t *testing.T, s *vault.Salts, tenant, receipt string) (salt, string) {
	t.Helper()
	salt, key, err := s.Salt(tenant, receipt)
	if err != nil {
		t.Fatal(err)
	}
	return salt, key
}

// reopened is the salt as `receipts open` makes it again.
func reopened(t *testing.T, s vault.ParamsStore, tenant, key, receipt string) (salt, error) {
	t.Helper()
	return vault.OpenSalt(t.Context(), s, func() (vault.KEK, error) { return parseKEK(t, "0"), nil }, tenant, key, receipt)
}

// TestSalts: a salt is of its tenant and its receipt, is the same whenever it is made,
// and is made again from the name of its key.
func TestSalts(t *testing.T) {
	s := openStore(t, t.TempDir())
	salts := loadSalts(t, s)
	seen := map[salt]string{}
	keys := map[string]string{}
	for _, tenant := range []string{"tenant:acme", "human:u-1", "key:acme"} {
		for _, receipt := range []string{"r1", "r2"} {
			salt, key := saltOf(t, salts, tenant, receipt)
			if again, k := saltOf(t, salts, tenant, receipt); again != salt || k != key {
				t.Errorf("%s %s: another salt the second time", tenant, receipt)
			}
			if other := seen[salt]; other != "" {
				t.Errorf("%s %s has the salt of %s", tenant, receipt, other)
			}
			seen[salt] = tenant + " " + receipt
			if keys[tenant] != "" && keys[tenant] != key {
				t.Errorf("%s has two keys", tenant)
			}
			keys[tenant] = key
			if got, err := reopened(t, s, tenant, key, receipt); err != nil || got != salt {
				t.Errorf("%s %s: reopened %x, %v", tenant, receipt, got, err)
			}
		}
	}
	if _, err := reopened(t, s, "human:u-1", keys["tenant:acme"], "r1"); !errors.Is(err, vault.ErrNoKey) {
		t.Errorf("the key of another tenant: %v", err)
	}
	// After a restart they are the same.
	after := loadSalts(t, s)
	for tenant := range keys {
		a, _ := saltOf(t, salts, tenant, "r3")
		if b, key := saltOf(t, after, tenant, "r3"); a != b || key != keys[tenant] {
			t.Errorf("%s: another key after a restart", tenant)
		}
	}
}

// opening is a store that counts who asks it, and can be made to fail.
type opening struct {
	*store.Store
	mu    sync.Mutex
	asked int
	err   error
	late  func() // before a key is stored
}

func (o *opening) ask() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	return o.err
}

func (o *opening) askedSoFar() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

func (o *opening) ParamsKeys(ctx context.Context) ([]store.ParamsKey, error) {
	if err := o.ask(); err != nil {
		return nil, err
	}
	return o.Store.ParamsKeys(ctx)
}

func (o *opening) AddParamsKeys(ctx context.Context, keys ...store.ParamsKey) error {
	if err := o.ask(); err != nil {
		return err
	}
	if o.late != nil {
		o.late()
	}
	return o.Store.AddParamsKeys(ctx, keys...)
}

// TestSaltsAskTheStoreOnce: a crowd at a new tenant makes one key, and from then on
// the store is not asked and may be gone.
func TestSaltsAskTheStoreOnce(t *testing.T) {
	o := &opening{Store: openStore(t, t.TempDir())}
	salts := loadSalts(t, o)
	o.asked = 0
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() { saltOf(t, salts, "tenant:acme", fmt.Sprint(i)) })
	}
	wg.Wait()
	if o.asked != 1 {
		t.Errorf("the store was asked %d times", o.asked)
	}
	o.err = errors.New("the store is gone")
	saltOf(t, salts, "tenant:acme", "r")
	if _, _, err := salts.Salt("tenant:new", "r"); !errors.Is(err, o.err) {
		t.Errorf("of a new tenant: %v", err)
	}
	if err := salts.Reload(t.Context()); !errors.Is(err, o.err) {
		t.Errorf("%v", err)
	}
	saltOf(t, salts, "tenant:acme", "r") // is kept
	o.err = nil
	saltOf(t, salts, "tenant:new", "r")
}

// TestManyNewTenantsWaitForTheStoreOnce: while one waits for the store, those who come
// are gathered, and have their keys in one step; if that fails, each is told, and has
// its key when the store is back.
func TestManyNewTenantsWaitForTheStoreOnce(t *testing.T) {
	o := &opening{Store: openStore(t, t.TempDir())}
	salts := loadSalts(t, o)
	const tenants = 100
	asked := func(failing error) (int, int64) {
		o.asked, o.err = 0, nil
		var once sync.Once
		o.late = func() {
			once.Do(func() {
				for end := time.Now().Add(10 * time.Second); salts.Wanting() < tenants; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Errorf("%d tenants wait", salts.Wanting())
						return
					}
				}
				o.mu.Lock()
				o.err = failing // of whoever asks next
				o.mu.Unlock()
			})
		}
		var failed atomic.Int64
		var wg sync.WaitGroup
		salt := func(tenant string) {
			if _, _, err := salts.Salt(tenant, "r"); errors.Is(err, failing) && err != nil {
				failed.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		}
		wg.Go(func() { salt(fmt.Sprint("first ", failing)) })
		for i := range tenants {
			wg.Go(func() {
				for salts.Wanting() == 0 && o.askedSoFar() == 0 {
					time.Sleep(time.Millisecond)
				}
				salt(fmt.Sprint("tenant:", i))
			})
		}
		wg.Wait()
		return o.asked, failed.Load()
	}
	if n, failed := asked(errors.New("full")); failed != tenants {
		t.Errorf("the store fails: asked %d times, %d of %d were told", n, failed, tenants)
	}
	if n, failed := asked(nil); n != 2 || failed != 0 {
		t.Errorf("asked %d times, %d failed", n, failed)
	}
	after := loadSalts(t, o)
	for i := range tenants {
		ours, key := saltOf(t, salts, fmt.Sprint("tenant:", i), "r")
		if theirs, k := saltOf(t, after, fmt.Sprint("tenant:", i), "r"); ours != theirs || key != k {
			t.Errorf("tenant %d: another key is stored", i)
		}
	}
}

// TestSaltAllocates: on the way of each call no more than a slice for the sum.
func TestSaltAllocates(t *testing.T) {
	salts := loadSalts(t, openStore(t, t.TempDir()))
	id := strings.Repeat("0", 32)
	saltOf(t, salts, "tenant:acme", id)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = salts.Salt("tenant:acme", id) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// TestTwoProcessesHaveOneKey: who comes second to a new tenant takes the key that
// the other made.
func TestTwoProcessesHaveOneKey(t *testing.T) {
	folder := t.TempDir()
	o := &opening{Store: openStore(t, folder)}
	here, there := loadSalts(t, o), loadSalts(t, openStore(t, folder))
	var theirs salt
	o.late = func() { theirs, _ = saltOf(t, there, "tenant:acme", "r") }
	if ours, _ := saltOf(t, here, "tenant:acme", "r"); ours != theirs {
		t.Error("two keys")
	}
}

// TestShredding: once a tenant's key is deleted no salt of its older receipts can be
// made again, of nobody else anything changes, and later receipts have another key.
func TestShredding(t *testing.T) {
	s := openStore(t, t.TempDir())
	salts := loadSalts(t, s)
	before, first := saltOf(t, salts, "tenant:acme", "r")
	other, others := saltOf(t, salts, "tenant:other", "r")
	generation, err := s.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if key, err := vault.Shred(t.Context(), s, "tenant:acme", noon.Add(time.Hour)); err != nil || key != first {
		t.Fatalf("%s, %v", key, err)
	}
	if g, err := s.Generation(t.Context()); err != nil || g != generation+1 {
		t.Errorf("gateways are not told: %d, %v", g, err)
	}
	if err := salts.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := reopened(t, s, "tenant:acme", first, "r"); !errors.Is(err, vault.ErrShredded) || !strings.Contains(err.Error(), "2026-03-01T13:00:00Z") || got == before {
		t.Errorf("%x, %v", got, err)
	}
	after, second := saltOf(t, salts, "tenant:acme", "r")
	if after == before || second == first {
		t.Error("the key is the old one")
	}
	if got, err := reopened(t, s, "tenant:acme", second, "r"); err != nil || got != after {
		t.Errorf("under the new key: %x, %v", got, err)
	}
	if again, key := saltOf(t, salts, "tenant:other", "r"); again != other || key != others {
		t.Error("another tenant has another key")
	}
	if _, err := vault.Shred(t.Context(), s, "tenant:acme", noon.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // to do it again does no harm
		if key, err := vault.Shred(t.Context(), s, "tenant:acme", noon.Add(time.Duration(3+i)*time.Hour)); key != second || !errors.Is(err, vault.ErrShredded) || !strings.Contains(err.Error(), "2026-03-01T14:00:00Z") {
			t.Errorf("once more: %s, %v", key, err)
		}
	}
	if _, err := vault.Shred(t.Context(), s, "tenant:none", noon); !errors.Is(err, vault.ErrNoKey) {
		t.Errorf("of a tenant without a key: %v", err)
	}
}

// TestShreddedAndMadeAnewElsewhere: another process has deleted the key and made the
// next before this one looks: that is the key from then on.
func TestShreddedAndMadeAnewElsewhere(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	here, there := loadSalts(t, s), loadSalts(t, openStore(t, folder))
	_, first := saltOf(t, here, "tenant:acme", "r")
	if _, err := vault.Shred(t.Context(), s, "tenant:acme", noon); err != nil {
		t.Fatal(err)
	}
	theirs, second := saltOf(t, there, "tenant:acme", "r")
	if err := here.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ours, key := saltOf(t, here, "tenant:acme", "r"); key != second || ours != theirs || key == first {
		t.Errorf("it goes on with %s, and the key is %s", key, second)
	}
}

// TestParamsKeysThatWereTouched: a key opens only as what it was wrapped as, and
// under its own vault key, which a start finds out.
func TestParamsKeysThatWereTouched(t *testing.T) {
	s := openStore(t, t.TempDir())
	saltOf(t, loadSalts(t, s), "tenant:acme", "r")
	rows, err := s.ParamsKeys(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	clock := clockwork.NewFakeClock()
	if _, err := vault.LoadSalts(t.Context(), s, parseKEK(t, "1"), clock); !errors.Is(err, vault.ErrWrongKEK) {
		t.Errorf("under another vault key: %v", err)
	}
	for name, touch := range map[string]func(k *store.ParamsKey){
		"another tenant": func(k *store.ParamsKey) { k.Tenant = "tenant:other" },
		"another name":   func(k *store.ParamsKey) { k.ID = "0" },
		"a bit":          func(k *store.ParamsKey) { k.Wrapped = append([]byte{k.Wrapped[0] ^ 1}, k.Wrapped[1:]...) },
		"cut":            func(k *store.ParamsKey) { k.Wrapped = k.Wrapped[:5] },
	} {
		k := rows[0]
		touch(&k)
		if _, err := vault.LoadSalts(t.Context(), touched{s, k}, parseKEK(t, "0"), clock); !errors.Is(err, vault.ErrCorrupt) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

type touched struct {
	*store.Store
	key store.ParamsKey
}

func (t touched) ParamsKeys(context.Context) ([]store.ParamsKey, error) {
	return []store.ParamsKey{t.key}, nil
}

// TestALostVaultKeyIsNotReplaced: where the keys of receipts are wrapped by a vault
// key that is gone a start does not make another; where all are deleted it does.
func TestALostVaultKeyIsNotReplaced(t *testing.T) {
	s := openStore(t, t.TempDir())
	saltOf(t, loadSalts(t, s), "tenant:acme", "r")
	source := vault.KEKSource{Folder: t.TempDir()}
	if _, err := vault.LoadKEK(t.Context(), source, s); err == nil || !strings.Contains(err.Error(), "parameters of receipts") {
		t.Errorf("error is %v", err)
	}
	if _, err := vault.Shred(t.Context(), s, "tenant:acme", noon); err != nil {
		t.Fatal(err)
	}
	if _, err := vault.LoadKEK(t.Context(), source, s); err != nil {
		t.Error(err)
	}
}

// TestAPINIsNotGuessed: who has the log, the state store and the vault key, and the
// salts that were told of other receipts, finds no PIN once the key is deleted.
func TestAPINIsNotGuessed(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	salts := loadSalts(t, s)
	mac := func(key, text []byte) []byte {
		m := hmac.New(sha256.New, key)
		m.Write(text)
		return m.Sum(nil)
	}
	salt, key := saltOf(t, salts, "tenant:acme", "r1")
	told, _ := saltOf(t, salts, "tenant:acme", "r2") // of another receipt
	pin := func(n int) []byte { return fmt.Appendf(nil, `{"pin":"%04d"}`, n) }
	hash := mac(salt[:], pin(4711))
	rows, err := s.ParamsKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wrapped := bytes.Clone(rows[0].Wrapped)
	if _, err := vault.Shred(t.Context(), s, "tenant:acme", noon); err != nil {
		t.Fatal(err)
	}
	kek := parseKEK(t, "0")
	var known [][]byte
	for _, from := range []string{"wrap", "fingerprint", "receipt params", "params", ""} {
		k := kek.DeriveKey(from)
		known = append(known, k[:])
	}
	known = append(known, told[:], []byte(kek.Reveal()), []byte(key), []byte("r1"), []byte("tenant:acme"), nil)
	for _, k := range known {
		known = append(known, mac(k, []byte("r1")), mac(k, []byte("tenant:acme")), mac(mac(k, []byte("tenant:acme")), []byte("r1")))
	}
	for _, k := range known {
		for n := range 10_000 {
			if n%100 == 11 && bytes.Equal(mac(k, pin(n)), hash) { // 4711 is among these
				t.Fatalf("%s is found with %x", pin(n), k)
			}
		}
	}
	if !bytes.Equal(mac(salt[:], pin(4711)), hash) || len(wrapped) == 0 {
		t.Error("it was not there to be found")
	}
}

// TestSaltsTellOfAStoreThatIsFull: once when keys can be kept no more and once when
// they can again, however many ask; and who has a key is none the worse for it.
func TestSaltsTellOfAStoreThatIsFull(t *testing.T) {
	o := &opening{Store: openStore(t, t.TempDir())}
	salts := loadSalts(t, o)
	var told []bool
	salts.Changed = func(err error) { told = append(told, err == nil) }
	if _, _, err := salts.Salt("tenant:old", "r"); err != nil {
		t.Fatal(err)
	}
	o.err = errors.New("database or disk is full")
	for range 3 {
		if _, _, err := salts.Salt("tenant:new", "r"); err == nil {
			t.Fatal("a key that is not kept is used")
		}
		if _, _, err := salts.Salt("tenant:old", "r"); err != nil {
			t.Errorf("one with a key: %v", err)
		}
	}
	if err := salts.Healthy(); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("healthy: %v", err)
	}
	o.err = nil
	if _, _, err := salts.Salt("tenant:new", "r"); err != nil || salts.Healthy() != nil {
		t.Errorf("with room again: %v, %v", err, salts.Healthy())
	}
	if !slices.Equal(told, []bool{false, true}) {
		t.Errorf("told %v", told)
	}
}
