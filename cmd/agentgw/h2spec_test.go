package main

import (
	"encoding/xml"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestH2Spec: of h2spec's tests the gateway fails those that net/http by itself fails
// beside it, and no other, in clear text and over TLS. H2SPEC names the program; make
// interop fetches it.
func TestH2Spec(t *testing.T) {
	h2spec := os.Getenv("H2SPEC")
	if h2spec == "" {
		t.Skip("H2SPEC names no h2spec; make interop fetches it")
	}
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "clear text", true: "TLS"}[secure]
		plain := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("hello")) }))
		plain.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		file := "version: 1\n"
		if secure {
			plain.EnableHTTP2 = true
			plain.StartTLS()
			certificate, key := pemPair(t, 1)
			dir := t.TempDir()
			for name, text := range map[string][]byte{"c": certificate, "k": key} {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file += "server: {tls_cert_file: " + filepath.Join(dir, "c") + ", tls_key_file: " + filepath.Join(dir, "k") + "}\n"
		} else {
			plain.Config.Protocols = new(http.Protocols)
			plain.Config.Protocols.SetUnencryptedHTTP2(true)
			plain.Start()
		}
		s, _ := startWith(t, "127.0.0.1", file)
		of := conformance(t, h2spec, plain.Listener.Addr().String(), secure)
		ours := conformance(t, h2spec, s.agentsListener.Addr().String(), secure)
		plain.Close()
		t.Logf("%s: of %d tests net/http fails %d: %q", name, of.all, len(of.failed), of.failed)
		t.Logf("%s: of %d tests the gateway fails %d: %q", name, ours.all, len(ours.failed), ours.failed)
		if ours.all != of.all || ours.all < 140 {
			t.Errorf("%s: %d tests of the gateway and %d of net/http", name, ours.all, of.all)
		}
		worse := func(of conformed) func(string) bool {
			return func(f string) bool { return !slices.Contains(of.failed, f) }
		}
		if slices.ContainsFunc(ours.failed, worse(of)) { // as it may for once where the machine is busy
			again := conformance(t, h2spec, s.agentsListener.Addr().String(), secure)
			ours.failed = slices.DeleteFunc(ours.failed, worse(again))
		}
		for _, f := range ours.failed {
			if worse(of)(f) {
				t.Errorf("%s: the gateway fails %s, and net/http does not", name, f)
			}
		}
	}
}

type conformed struct {
	all    int
	failed []string
}

// conformance runs h2spec against an address. It ends with 1 where a test fails.
func conformance(t *testing.T, h2spec, address string, secure bool) (c conformed) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.xml")
	args := []string{"-h", host, "-p", port, "-o", "2", "-j", report}
	if secure {
		args = append(args, "-t", "-k")
	}
	said, err := exec.CommandContext(t.Context(), h2spec, args...).CombinedOutput()
	text, errReport := os.ReadFile(report)
	if errReport != nil {
		t.Fatalf("%v, %v: %s", err, errReport, said)
	}
	var suites struct {
		Suites []struct {
			Name  string `xml:"name,attr"`
			ID    string `xml:"id,attr"`
			Cases []struct {
				Package   string    `xml:"package,attr"`
				ClassName string    `xml:"classname,attr"`
				Failure   *struct{} `xml:"failure"`
				Error     *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		t.Fatal(err)
	}
	for _, s := range suites.Suites {
		for _, one := range s.Cases {
			c.all++
			if one.Failure != nil || one.Error != nil {
				c.failed = append(c.failed, strings.TrimSpace(one.Package+" "+one.ClassName))
			}
		}
	}
	return c
}
