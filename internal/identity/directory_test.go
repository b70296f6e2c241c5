package identity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// directory makes one of keys, which get digests of their own where they have
// none.
func directory(t testing.TB, keys ...identity.Key) *identity.Directory {
	t.Helper()
	var all []*identity.Key
	for i := range keys {
		if keys[i].Digest == ([32]byte{}) {
			keys[i].Digest[0] = byte(i + 1)
		}
		all = append(all, &keys[i])
	}
	d, err := identity.NewDirectory(all)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDuplicatesAreNamed(t *testing.T) {
	_, err := identity.NewDirectory([]*identity.Key{
		{ID: "a", Digest: [32]byte{1}, Origin: "registry.yaml:3:5"},
		{ID: "b", Digest: [32]byte{2}, Origin: "registry.yaml:4:5"},
		{ID: "a", Digest: [32]byte{3}, Origin: "the store"},
		{ID: "c", Digest: [32]byte{2}},
	})
	if err == nil {
		t.Fatal("duplicates were taken")
	}
	for _, want := range []string{
		`key id "a" is declared twice: registry.yaml:3:5 and the store`,
		`keys "b" (registry.yaml:4:5) and "c" (unknown place) are the same key`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %q, without %q", err, want)
		}
	}
}

func TestFindKeepsToTheTimes(t *testing.T) {
	d := directory(t,
		identity.Key{ID: "always", Digest: [32]byte{1}},
		identity.Key{ID: "bounded", Digest: [32]byte{2}, NotBefore: noon, NotAfter: noon.Add(time.Hour)},
		identity.Key{ID: "rotated", Digest: [32]byte{4}, Retiring: &identity.Retiring{Digest: [32]byte{5}, NotAfter: noon}},
	)
	for _, c := range []struct {
		at     time.Time
		digest byte
		want   string
	}{
		{noon, 1, "always"},
		{time.Time{}, 1, "always"},
		{noon.Add(-1), 2, ""},
		{noon, 2, "bounded"},
		{noon.Add(time.Hour - 1), 2, "bounded"},
		{noon.Add(time.Hour), 2, ""},
		{noon, 3, ""},
		{noon, 4, "rotated"},
		{noon.Add(-1), 5, "rotated"},
		{noon, 5, ""},
		{noon, 0, ""},
	} {
		got := ""
		if s := d.Find([32]byte{c.digest}, c.at); s != nil {
			got = s.Key.ID
		}
		if got != c.want {
			t.Errorf("digest %d at %v: %q, want %q", c.digest, c.at, got, c.want)
		}
	}
}

func TestDirectoryIsItsOwn(t *testing.T) {
	k := &identity.Key{ID: "a", Digest: [32]byte{1}, Services: []string{"s"}, Users: []string{"u"}, Limits: &identity.Limits{RPS: 1, Burst: 2}}
	d, err := identity.NewDirectory([]*identity.Key{k})
	if err != nil {
		t.Fatal(err)
	}
	k.Services[0], k.Users[0], k.Limits.RPS, k.ID = "*", "*", 99, "b"
	got := d.ByID("a")
	if got == nil || got.AllServices() || got.AllUsers() || got.Limits.RPS != 1 {
		t.Errorf("the directory changed with what it was made of: %+v", got)
	}
}

func TestEmptyDirectories(t *testing.T) {
	for name, d := range map[string]*identity.Directory{"nil": nil, "zero": {}} {
		if d.Find([32]byte{1}, noon) != nil || d.ByID("a") != nil || d.Len() != 0 || len(d.Keys()) != 0 {
			t.Errorf("%s knows a key", name)
		}
		if _, err := d.Authenticate(nil, noon); err != identity.ErrUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysComeById(t *testing.T) {
	d := directory(t, identity.Key{ID: "c"}, identity.Key{ID: "a"}, identity.Key{ID: "b"})
	var ids []string
	for i, k := range d.Keys() {
		ids = append(ids, k.ID)
		if k.Number() != i || d.ByID(k.ID) != k {
			t.Errorf("%s has number %d at place %d", k.ID, k.Number(), i)
		}
	}
	if got := fmt.Sprint(ids); got != "[a b c]" || d.Len() != 3 {
		t.Errorf("%s, %d keys", got, d.Len())
	}
}
