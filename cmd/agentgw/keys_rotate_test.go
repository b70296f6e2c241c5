package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/store"
)

func rotation(t *testing.T, stdout string) (r rotated) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || !identity.LooksLikeKey(r.Key) {
		t.Fatalf("%q: %v", stdout, err)
	}
	return r
}

// TestKeysRotate: a key has two secrets for a while, and what it may do stays.
func TestKeysRotate(t *testing.T) {
	b := newBench(t, stateRegistry)
	made, _ := b.want(exitDone, "keys", "create", "--id", "a", "--services", "github", "--users", "u", "--tenant", "acme", "--expires", "1000h", "--json")
	first := rotation(t, made)
	before := b.keys()[0]
	stdout, _ := b.want(exitDone, "keys", "rotate", "a", "--json")
	second := rotation(t, stdout)
	after := b.keys()[0]
	newest, _ := identity.ParseKey(second.Key)
	oldest, _ := identity.ParseKey(first.Key)
	if second.ID != "a" || second.Key == first.Key || after.Digest != newest || after.Retiring == nil || after.Retiring.Digest != oldest {
		t.Fatalf("%+v became %+v, and it says %s", before, after, stdout)
	}
	if left := time.Until(after.Retiring.NotAfter); left < 23*time.Hour || left > 24*time.Hour || !second.OldUntil.Equal(after.Retiring.NotAfter) {
		t.Errorf("the old one is valid for %v, and it says until %v", left, second.OldUntil)
	}
	after.Digest, after.Retiring = before.Digest, nil
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%+v became %+v", before, after)
	}
	used := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := b.store().SecretsUsed(t.Context(), map[[32]byte]time.Time{oldest: used}); err != nil {
		t.Fatal(err)
	}
	stdout, _ = b.want(exitDone, "keys", "list")
	lines := strings.Split(stdout, "\n")
	end := b.keys()[0].Retiring.NotAfter.UTC().Format(time.RFC3339)
	if len(lines) != 4 || strings.Join(strings.Fields(lines[2]), " ") != "a retiring "+end+" 2026-03-01T12:00:00Z" || !strings.HasSuffix(lines[1], "Z  -") {
		t.Errorf("the list is\n%s", stdout)
	}

	if _, stderr := b.want(exitCannotRun, "keys", "rotate", "a", "--grace", "1h"); !strings.Contains(stderr, "has two secrets already: wait for the end of the older one (keys list), or end both with --grace 0") {
		t.Errorf("a third: %q", stderr)
	}
	stdout, _ = b.want(exitDone, "keys", "rotate", "a", "--grace", "0", "--json")
	third := rotation(t, stdout)
	if k := b.keys()[0]; k.Retiring != nil || third.OldUntil != nil || k.Digest == newest {
		t.Errorf("with no grace: %+v, %s", k, stdout)
	}
	stdout, _ = b.want(exitDone, "keys", "rotate", "a", "--grace", "2000h")
	k := b.keys()[0]
	if !k.Retiring.NotAfter.Equal(k.NotAfter) || !strings.Contains(stdout, "old key  valid until "+when(&k.NotAfter)+"\n") {
		t.Errorf("longer than the key: until %v of %v, and it says\n%s", k.Retiring.NotAfter, k.NotAfter, stdout)
	}
	if stdout, _ = b.want(exitDone, "keys", "rotate", "a", "--grace", "0"); !strings.Contains(stdout, "old key  no longer valid\n") {
		t.Errorf("%q", stdout)
	}

	if err := b.store().AddKey(t.Context(), store.Key{ID: "old", Digest: [32]byte{1}, NotAfter: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	b.want(exitDone, "keys", "create", "--id", "gone", "--services", "*", "--users", "*")
	b.want(exitDone, "keys", "revoke", "gone")
	for args, says := range map[string]string{
		"none": `key "none": not found`, "gone": `key "gone": was revoked`, "old": `key "old" has expired on 1970-01-01T00:00:01Z`,
		"static": `key "static" is declared at registry.yaml:5:5: put the new key's SHA-256 there as sha256, and the old one under retiring`,
	} {
		if stdout, stderr := b.want(exitCannotRun, "keys", "rotate", args); !strings.Contains(stderr, says) || stdout != "" {
			t.Errorf("%s: %q, %q", args, stdout, stderr)
		}
	}
	for grace, says := range map[string]string{"24": "has no unit", "-1h": "is negative", "1000000h": "over a hundred years"} {
		if _, stderr := b.want(exitUsage, "keys", "rotate", "a", "--grace="+grace); !strings.Contains(stderr, "--grace: ") || !strings.Contains(stderr, says) {
			t.Errorf("%s: %q", grace, stderr)
		}
	}
}

// TestAKeyThatIsNotYetValid is listed as pending, and a running gateway takes none.
func TestAKeyThatIsNotYetValid(t *testing.T) {
	r := newReloading(t, "{}")
	key := r.storedKey(store.Key{ID: "early", NotBefore: time.Now().Add(time.Hour)}, nil)
	valid := r.storedKey(store.Key{ID: "now", NotBefore: time.Now().Add(-time.Hour)}, nil)
	eventually(t, "the keys are known", func() bool { return r.statusOf(valid) == 200 })
	if status := r.statusOf(key); status == 200 {
		t.Errorf("before its time: %d", status)
	}
	lines, _, err := keyLines(t.Context(), r.server.store, time.Now())
	if err != nil || len(lines) < 2 || lines[0].State != "pending" || lines[1].State != "valid" {
		t.Errorf("%v: %+v", err, lines)
	}
}

func (r *reloading) statusOf(key string) int {
	res := r.callAs(key, "get")
	_ = res.Body.Close()
	return res.StatusCode
}

// TestTwoSecretsAreOneCaller, of the store and of the registry file: one bucket, one
// tenant, one id in receipts, and last uses of each; those of a file too.
func TestTwoSecretsAreOneCaller(t *testing.T) {
	r := newReloading(t, "{}")
	first := r.storedKey(store.Key{ID: "rotated"}, &store.Limits{RPS: 0.001, Burst: 3})
	eventually(t, "the key is known", func() bool { return r.statusOf(first) == 200 })
	text, until, err := rotate(t.Context(), r.server.store, "rotated", time.Hour, time.Now())
	if err != nil || until.IsZero() {
		t.Fatal(err)
	}
	eventually(t, "the second is known", func() bool { return r.statusOf(text.Reveal()) == 200 })
	for i, key := range []string{first, text.Reveal(), first} {
		if status := r.statusOf(key); (status == 200) != (i == 0) || i > 0 && status != 429 {
			t.Errorf("call %d: %d", i+3, status)
		}
	}

	spare, spareDigest := identity.NewKey()
	file, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	more := strings.Replace(string(file), "tenant: t}", fmt.Sprintf(`tenant: t, not_before: 2020-01-01T00:00:00Z, retiring: {sha256: "%x", not_after: %s}}`,
		spareDigest, time.Now().Add(time.Hour).Format(time.RFC3339)), 1)
	reload := func(text string) {
		t.Helper()
		if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, body := r.operate(http.MethodPost, "/admin/v1/reload", operators); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	reload(more)
	for _, key := range []string{r.key, spare.Reveal()} {
		if status := r.statusOf(key); status != 200 {
			t.Errorf("a secret of the file: %d", status)
		}
	}
	if err := r.server.live.writeUses(t.Context()); err != nil {
		t.Fatal(err)
	}
	uses, err := r.server.store.LastUses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{first, text.Reveal(), r.key, spare.Reveal()} {
		digest, _ := identity.ParseKey(key)
		if since := time.Since(uses[digest]); since < 0 || since > time.Minute {
			t.Errorf("a secret was used %v ago", since)
		}
	}
	reload(strings.Replace(more, "not_before: 2020-01-01T00:00:00Z", "not_after: 2020-01-01T00:00:00Z", 1))
	for _, key := range []string{r.key, spare.Reveal()} {
		if status := r.statusOf(key); status == 200 {
			t.Errorf("of a key whose time is over: %d", status)
		}
	}
	reload(strings.Replace(more, "not_after: "+time.Now().Format("2006"), "not_after: 2020", 1))
	if status := r.statusOf(r.key); status != 200 {
		t.Errorf("of the newer secret: %d", status)
	}
	if status := r.statusOf(spare.Reveal()); status == 200 {
		t.Errorf("of a retiring secret whose time is over: %d", status)
	}
}

// TestAuthenticationAsksNoStore: with the store closed a key is known, and a stranger,
// whatever he sends, is a stranger.
func TestAuthenticationAsksNoStore(t *testing.T) {
	r := newReloading(t, "{}")
	if status := r.statusOf(r.key); status != 200 {
		t.Fatal(status)
	}
	if err := r.server.store.Close(); err != nil {
		t.Fatal(err)
	}
	stranger, _ := identity.NewKey()
	for key, want := range map[string]int{r.key: 200, stranger.Reveal(): 401, r.key[:52] + "!": 401, "agw_' OR '1'='1": 401} {
		if status := r.statusOf(key); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
}

// TestRevocationIsSeenByAGatewayThatRuns: within two seconds of the change in the
// store, by another process, a stream has ended.
func TestRevocationIsSeenByAGatewayThatRuns(t *testing.T) {
	r := newReloading(t, "{}")
	key := r.storedKey(store.Key{ID: "streaming"}, nil)
	eventually(t, "the key is known", func() bool { return r.statusOf(key) == 200 })
	res := r.callAs(key, "hold")
	defer func() { _ = res.Body.Close() }()
	first := make([]byte, len("begun"))
	if _, err := res.Body.Read(first); err != nil {
		t.Fatal(err)
	}
	other, err := store.Open(t.Context(), r.server.settings.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := other.RevokeKey(context.Background(), "streaming", time.Now()); err != nil {
		t.Fatal(err)
	}
	passed := napping(t)
	if _, err := res.Body.Read(first); err == nil {
		t.Error("the stream goes on")
	}
	if took := passed(); took > 2*time.Second {
		t.Errorf("it ended after %v", took)
	}
}
