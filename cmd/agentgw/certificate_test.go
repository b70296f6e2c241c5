package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pemPair returns a self-signed certificate of that serial number and its key.
func pemPair(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "gw"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestCertificateIsReadAgain(t *testing.T) {
	folder := t.TempDir()
	certFile, keyFile := filepath.Join(folder, "cert"), filepath.Join(folder, "key")
	at := time.Unix(1000, 0)
	put := func(name string, text []byte) { // each write is a second after the last
		t.Helper()
		at = at.Add(time.Second)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	failures := 0
	if _, err := newCertificate(certFile, keyFile, nil); err == nil {
		t.Fatal("files that are not there were taken")
	}
	cert1, key1 := pemPair(t, 1)
	cert2, key2 := pemPair(t, 2)
	put(certFile, cert1)
	put(keyFile, key1)
	c, err := newCertificate(certFile, keyFile, func(error) { failures++ })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(serial int64, failed int) {
		t.Helper()
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if leaf.SerialNumber.Int64() != serial || failures != failed {
			t.Errorf("serial %v with %d failures, want %d with %d", leaf.SerialNumber, failures, serial, failed)
		}
	}
	expect(1, 0)
	put(certFile, cert2) // half of a renewal
	expect(1, 1)
	expect(1, 1) // told once for each change
	put(keyFile, key2)
	expect(2, 1)
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	expect(2, 2)
}
