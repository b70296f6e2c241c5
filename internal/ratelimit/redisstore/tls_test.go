package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentgw/internal/freeport"
	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// issuer makes certificates, in files.
type issuer struct {
	t      *testing.T
	folder string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	ca     string
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, folder: t.TempDir()}
	i.ca, _ = i.make("ca")
	return i
}

// make writes a certificate for a name or address and its key. The first is the issuer's own.
func (i *issuer) make(name string) (cert, key string) {
	i.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if ip := net.ParseIP(name); ip != nil {
		of.IPAddresses = []net.IP{ip}
	} else {
		of.DNSNames = []string{name}
	}
	parent, by := i.cert, i.key
	if parent == nil {
		of.IsCA, of.BasicConstraintsValid = true, true
		parent, by = of, private
	}
	raw, err := x509.CreateCertificate(rand.Reader, of, parent, &private.PublicKey, by)
	if err != nil {
		i.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		i.t.Fatal(err)
	}
	if i.cert == nil {
		if i.cert, err = x509.ParseCertificate(raw); err != nil {
			i.t.Fatal(err)
		}
		i.key = private
	}
	return i.write(name+".crt", "CERTIFICATE", raw), i.write(name+".key", "EC PRIVATE KEY", secret)
}

func (i *issuer) write(name, kind string, raw []byte) string {
	path := filepath.Join(i.folder, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return path
}

// TestTLS: with the issuer that it is told of and a certificate of its own it decides by a
// server that asks for both; and whatever is wrong of certificates, or that one of both sides
// speaks no TLS, is said in words.
func TestTLS(t *testing.T) {
	ours, strange := newIssuer(t), newIssuer(t)
	_, port, _ := net.SplitHostPort(freeport.Address(t))
	cert, key := ours.make("127.0.0.1")
	named, namedKey := ours.make("redis.example")
	_, namedPort, _ := net.SplitHostPort(freeport.Address(t))
	for of, args := range map[string][]string{port: {cert, key}, namedPort: {named, namedKey}} {
		redistest.Start(t, "--tls-port", of, "--tls-cert-file", args[0], "--tls-key-file", args[1], "--tls-ca-cert-file", ours.ca)
	}
	client, clientKey := ours.make("gateway")
	own := "&ssl_certfile=" + client + "&ssl_keyfile=" + clientKey
	at := func(port, parameters string) string { return "rediss://127.0.0.1:" + port + "?" + parameters }

	good := newReal(t, at(port, "ssl_ca_certs="+ours.ca+own), long, ratelimit.PolicyClosed)
	good.warm(t)
	if ticket, outcome := good.admit("t", 1); outcome != ratelimit.Admitted {
		t.Error(outcome, good.store.Failures())
	} else {
		ticket.Release()
	}
	for _, c := range []struct{ name, url, want string }{
		{"another issuer", at(port, "ssl_ca_certs="+strange.ca+own), "unknown authority"},
		{"another name", at(namedPort, "ssl_ca_certs="+ours.ca+own), "127.0.0.1"},
		{"none of its own", at(port, "ssl_ca_certs="+ours.ca), "certificate required"},
		{"a client without TLS", "redis://127.0.0.1:" + port, ""},
	} {
		r := newReal(t, c.url, long, ratelimit.PolicyClosed)
		r.says(t, c.want) // perhaps not at first: an alert may be lost with its connection
		if of := r.store.Failures(); c.want != "" && of[redisstore.TLS] == 0 {
			t.Errorf("%s: failed for %v", c.name, of)
		}
	}
}
