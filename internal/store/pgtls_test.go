package store_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/pgtest"
	"agentgw/internal/store"
)

// selfSigned is a certificate for an address, which is its own issuer, with its key.
func selfSigned(t *testing.T, ip string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// TestPostgresByTLS: the connections, the listener's too, are encrypted, and the server is who it
// should be; else the error says so, which is not that it is away.
func TestPostgresByTLS(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	url := strings.TrimSuffix(server.Database(t), "sslmode=disable")
	certificate, key := selfSigned(t, "127.0.0.1")
	server.Encrypt(t, certificate, key)
	stranger, _ := selfSigned(t, "127.0.0.1")
	trusted, others := filepath.Join(t.TempDir(), "trusted.pem"), filepath.Join(t.TempDir(), "others.pem")
	if err := errors.Join(os.WriteFile(trusted, certificate, 0o600), os.WriteFile(others, stranger, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := openPostgres(t, url+"sslmode=verify-full&sslrootcert="+trusted)
	seen, _ := listening(t, s)
	until(t, seen, 0)
	eventually(t, "it listens", s.Pushes)
	var encrypted, all int
	if err := look(t, url+"sslmode=disable").QueryRow(`SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'agentgw'`).Scan(&encrypted, &all); err != nil || encrypted != all || all < 2 {
		t.Errorf("%d of %d connections are encrypted, %v", encrypted, all, err)
	}
	_, err := store.OpenPostgres(t.Context(), url+"sslmode=verify-full&sslrootcert="+others)
	if err == nil || errors.Is(err, store.ErrAway) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}
