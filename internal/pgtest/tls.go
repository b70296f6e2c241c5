package pgtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Encrypt starts it anew with TLS, for whoever asks for it, by this certificate and key, in PEM.
func (s *Server) Encrypt(t testing.TB, certificate, key []byte) {
	t.Helper()
	s.Stop()
	for name, text := range map[string][]byte{"server.crt": certificate, "server.key": key} {
		path := filepath.Join(s.data, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if s.as != nil {
			if err := os.Chown(path, int(s.as.Credential.Uid), int(s.as.Credential.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	settings, err := os.OpenFile(filepath.Join(s.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = settings.WriteString("\nssl = on\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := settings.Close(); err != nil {
		t.Fatal(err)
	}
	s.Again(t)
}
