package pgaddr_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/pgaddr"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		url, host, user, password, database string
		tls                                 bool
	}{
		{"postgres://u:p@h:5433/d?sslmode=disable", "h", "u", "p", "d", false},
		{"postgresql://u:%40%2F%23%25@h/d?sslmode=verify-full", "h", "u", "@/#%", "d", true},
		{"postgres://u@[::1]:5433/d?sslmode=require", "::1", "u", "", "d", true},
		{"postgres://u:p@a:1,b:2/d?sslmode=disable&target_session_attrs=read-write", "a", "u", "p", "d", false},
	} {
		got, err := pgaddr.Parse(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got.Host != c.host || got.User != c.user || got.Password != c.password || got.Database != c.database || (got.TLSConfig != nil) != c.tls {
			t.Errorf("%s: %q %q %q %q, TLS %v", c.url, got.Host, got.User, got.Password, got.Database, got.TLSConfig != nil)
		}
		if got.ConnectTimeout != pgaddr.ConnectTimeout || got.RuntimeParams["application_name"] != "agentgw" {
			t.Errorf("%s: %v, %q", c.url, got.ConnectTimeout, got.RuntimeParams)
		}
	}
	got, err := pgaddr.Parse("postgres://u:p@h/d?connect_timeout=7&application_name=mine")
	if err != nil || got.ConnectTimeout != 7*time.Second || got.RuntimeParams["application_name"] != "mine" {
		t.Errorf("what the URL says itself: %+v, %v", got, err)
	}
}

// TestNoErrorQuotesTheURL: what is wrong is told, and nothing that may be of a password.
func TestNoErrorQuotesTheURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"":                             "is not postgres://",
		"s3cr3t":                       "is not postgres://",
		"redis://u:s3cr3t@h":           "is not postgres://",
		"host=h password=s3cr3t":       "is not postgres://",
		"postgres://u:s3c/r3t@h/d":     "%2F",
		"postgres://u:s3c@r3t@h/d":     "%40",
		"postgres://u:s3c#r3t@h/d":     "%23",
		"postgres://u:s3c%zzr3t@h/d":   "%25",
		"postgres://u:p@h:s3cr3t/d":    "a port is a number",
		"postgres://u:p@h/d?a=%zzs3c":  "parameters",
		"postgres://u:p@h/d?sslmode=x": "verify-full",
		"postgres://u:s3cr3t@h/d?sslmode=verify-full&sslrootcert=" + file:  file,
		"postgres://u:s3cr3t@h/d?sslmode=verify-full&sslrootcert=" + empty: "certificate",
		"postgres://u:s3cr3t@h/d?target_session_attrs=s3cr3t":              "is not postgres://",
	} {
		_, err := pgaddr.Parse(url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", url, err, want)
			continue
		}
		for _, part := range []string{"s3c", "r3t"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error quotes it: %v", url, err)
			}
		}
	}
}
