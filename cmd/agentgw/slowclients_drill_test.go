package main

import (
	"crypto/tls"
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSlowClients: a thousand connections of slowhttptest, whose heads, bodies or ranges
// never end, are gone a second after the bound that the gateway has for each, in clear
// text, where HTTP/2 may begin as well, and over TLS; and others are served meanwhile, no
// slower than twice as slow. It is a drill, and Debian has the program.
func TestSlowClients(t *testing.T) {
	if os.Getenv("DRILLS") != "full" {
		t.Skip("a drill")
	}
	if _, err := exec.LookPath("slowhttptest"); err != nil {
		t.Skip("slowhttptest is not there (Debian: apt-get install slowhttptest): this drill was NOT run")
	}
	const connections = 1000
	dir := t.TempDir()
	certificate, key := pemPair(t, 1)
	for name, text := range map[string][]byte{"c": certificate, "k": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range map[string]string{
		"clear text": "version: 1\nserver: {client_stall: 10s}\n",
		"TLS":        "version: 1\nserver: {client_stall: 10s, tls_cert_file: " + filepath.Join(dir, "c") + ", tls_key_file: " + filepath.Join(dir, "k") + "}\n",
	} {
		s, _ := startWith(t, "127.0.0.1", file)
		url := map[string]string{"clear text": "http://", "TLS": "https://"}[name] + s.agentsListener.Addr().String() + "/v1/whoami"
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		ask := func() time.Duration {
			r, err := http.NewRequest("GET", url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Agentgate-Key", s.firstKey.Reveal())
			began := time.Now()
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode != 200 {
				t.Fatal(res.Status)
			}
			return time.Since(began)
		}
		asked := func(until func() bool) (times []time.Duration) {
			for !until() {
				times = append(times, ask())
				time.Sleep(60 * time.Millisecond) // under the rate of a key
			}
			slices.Sort(times)
			return times
		}
		quiet := time.Now()
		before := asked(func() bool { return time.Since(quiet) > 8*time.Second })
		for _, mode := range []string{"-H", "-B", "-R"} {
			report := filepath.Join(dir, "report")
			c := exec.CommandContext(t.Context(), "slowhttptest", mode, "-c", fmt.Sprint(connections), "-r", "200", "-i", "2", "-x", "8", "-l", "60", "-g", "-o", report, "-u", url)
			var said lockedBuffer
			c.Stdout = &said
			done, began := make(chan error, 1), time.Now()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { done <- c.Wait() }()
			during := asked(func() bool { return len(done) > 0 })
			if err := <-done; err != nil {
				t.Error(err)
			}
			took, opened := time.Since(began), openedBy(t, report+".csv", connections)
			p99 := func(times []time.Duration) time.Duration { return times[len(times)*99/100] }
			t.Logf("%s %s: of %d connections the last was open by second %d, and gone after %v; p99 of %d calls of another client %v, before it of %d %v", name, mode, connections, opened,
				took.Round(100*time.Millisecond), len(during), p99(during).Round(10*time.Microsecond), len(before), p99(before).Round(10*time.Microsecond))
			// Of heads, bodies and whole requests each is bounded to ten seconds, and the
			// report has whole ones.
			if !strings.Contains(said.String(), "No open connections left") || took > time.Duration(opened+12)*time.Second {
				t.Errorf("%s %s: it took %v: %s", name, mode, took, said.String())
			}
			if p99(during) > max(2*p99(before), 20*time.Millisecond) {
				t.Errorf("%s %s: p99 is %v, and was %v", name, mode, p99(during), p99(before))
			}
		}
		client.CloseIdleConnections()
	}
}

// openedBy tells from a report by which second all connections had been opened.
func openedBy(t *testing.T, report string, connections int) (last int) {
	t.Helper()
	f, err := os.Open(report)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 || strings.Join(rows[0][:4], ",") != "Seconds,Closed,Pending,Connected" {
		t.Fatal(rows, err)
	}
	for _, row := range rows[1:] {
		var n [4]int
		for i := range n {
			if n[i], err = strconv.Atoi(row[i]); err != nil {
				t.Fatal(err)
			}
		}
		if last = n[0]; n[1]+n[3] == connections {
			return last
		}
	}
	return last // they were closed sooner than that
}
