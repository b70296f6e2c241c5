package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"agentgw/internal/vault"
)

// TestTheVaultKeyIsReplaced beside a gateway that knows the old one alone: it is not
// ready, goes on with the credentials it has, and still takes over a revoked key.
func TestTheVaultKeyIsReplaced(t *testing.T) {
	b := newBench(t, "")
	old, next := strings.Repeat("ab", 24)+"0123456789abcdef", strings.Repeat("cd", 24)+"0123456789abcdef"
	if err := os.Mkdir(b.data, 0o700); err != nil {
		t.Fatal(err)
	}
	b.write("data/vault-key", []byte(old+"\n"))
	if code, _, stderr := b.run("canary", "credentials", "set", "--service", "s"); code != exitDone {
		t.Fatal(stderr)
	}
	said := &lockedBuffer{}
	s, err := startIn(t, b.data, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(context.Background())
	if err := s.ready(); err != nil {
		t.Fatal(err)
	}
	b.env = []string{"AGENTGATE_VAULT_KEY=" + next}
	if _, stderr := b.want(exitCannotRun, "credentials", "rewrap"); !strings.Contains(stderr, "is not the one that the state store was sealed under") {
		t.Errorf("without the old key: %s", stderr)
	}
	b.env = append(b.env, "AGENTGATE_VAULT_KEY_PREVIOUS="+old)
	if stdout, _ := b.want(exitDone, "credentials", "rewrap"); strings.HasPrefix(stdout, "keys wrapped anew: 0\n") {
		t.Errorf("it says %s", stdout)
	}
	if stdout, _ := b.want(exitDone, "credentials", "rewrap"); stdout != "keys wrapped anew: 0\ncredentials sealed anew: 0\n" {
		t.Errorf("again it says %s", stdout)
	}
	eventually(t, "the gateway is not ready", func() bool { return errors.Is(s.ready(), vault.ErrWrongKEK) })
	if _, err := s.vault.Open(t.Context(), vault.Ref{Service: "s"}, vault.Form{Type: vault.TypeBearer}); err != nil {
		t.Errorf("what it had: %v", err)
	}
	status := func() int {
		r, err := http.NewRequest(http.MethodGet, "http://"+s.agentsListener.Addr().String()+"/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.firstKey.Reveal())
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		return res.StatusCode
	}
	if got := status(); got != 200 {
		t.Errorf("its key gets %d", got)
	}
	b.env = []string{"AGENTGATE_VAULT_KEY=" + next}
	b.want(exitDone, "keys", "revoke", "first")
	eventually(t, "the revoked key is refused", func() bool { return status() == 401 })
}
