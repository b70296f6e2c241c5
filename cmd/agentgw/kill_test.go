package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/freeport"
	"agentgw/internal/receipts"
)

var receiptID = regexp.MustCompile(`id="([0-9a-f]+)"`)

// rounds is how often a drill is repeated: a few times in `make test`, as often
// as it takes to believe it with DRILLS=full.
func rounds(short, full int) int {
	if os.Getenv("DRILLS") == "full" {
		return full
	}
	return short
}

// TestKillUnderLoad kills the real binary with SIGKILL while callers are at
// work, again and again on one data folder. Every receipt that an agent was
// told of is in the log, every request that the upstream saw has its intent,
// and the log verifies.
func TestKillUnderLoad(t *testing.T) {
	folder := t.TempDir()
	binary := program(t, folder)
	var mu sync.Mutex
	seen := map[string]bool{} // request ids at the upstream
	told := map[string]bool{} // receipts that an agent was told of
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Header.Get("X-Request-Id")] = true
		mu.Unlock()
		_, _ = io.WriteString(w, `{}`)
	}))
	defer upstream.Close()
	file := filepath.Join(folder, "registry.yaml")
	text := fmt.Sprintf("version: 1\nservices:\n  tools:\n    base_url: %s\n    allow_private: true\n    actions:\n      get: {method: GET, path: /x}\n", upstream.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(folder, "data")
	const callers, whenKilled = 8, 60
	for round := range rounds(3, 100) {
		listen, adminListen := freeport.Address(t), freeport.Address(t)
		gateway := exec.Command(binary, "serve", "--registry", file, "--data", data, "--listen", listen, "--admin-listen", adminListen,
			"--rate-key-rps", "100000", "--rate-key-burst", "100000", "--rate-tenant-rps", "100000", "--rate-tenant-burst", "100000")
		var stderr bytes.Buffer
		gateway.Stderr = &stderr
		if err := gateway.Start(); err != nil {
			t.Fatal(err)
		}
		if !ready(adminListen) {
			_ = gateway.Process.Kill()
			_ = gateway.Wait()
			t.Fatalf("round %d: the gateway did not get ready:\n%s", round, stderr.String())
		}
		key, err := os.ReadFile(filepath.Join(data, "first-key"))
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		answers := make(chan struct{}, 1024)
		for range callers {
			wait.Go(func() {
				for {
					r, err := http.NewRequest("POST", "http://"+listen+"/v1/act", strings.NewReader(`{"service":"tools","action":"get"}`))
					if err != nil {
						return
					}
					r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
					res, err := http.DefaultClient.Do(r)
					if err != nil {
						return // killed
					}
					_, err = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					if err != nil {
						return
					}
					mu.Lock()
					told[receiptID.FindStringSubmatch(res.Header.Get("Agentgate-Receipt"))[1]] = true
					mu.Unlock()
					answers <- struct{}{}
				}
			})
		}
		for range whenKilled + 7*(round%30) {
			select {
			case <-answers:
			case <-time.After(time.Minute):
				_ = gateway.Process.Kill()
				_ = gateway.Wait()
				t.Fatalf("round %d: the gateway answers no more:\n%s", round, stderr.String())
			}
		}
		if err := gateway.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = gateway.Wait()
		go func() { wait.Wait(); close(answers) }()
		for range answers {
		}
	}
	intents, outcomes, report := verified(t, data)
	for id := range told {
		if outcomes[id] != 1 {
			t.Errorf("receipt %s was told to an agent and has %d outcomes", id, outcomes[id])
		}
	}
	for id := range seen {
		if !intents[id] {
			t.Errorf("the upstream saw request %s, which has no intent", id)
		}
	}
	t.Logf("%d receipts told, %d upstream requests, %d unknown outcomes, %d repaired tails", len(told), len(seen), report.Unknown, report.Repaired)
}

// verified repairs the log of a gateway that was killed, verifies it, and returns the requests that have an
// intent in it, and how many outcomes each receipt has.
func verified(t *testing.T, data string) (intents map[string]bool, outcomes map[string]int, report *receipts.Report) {
	t.Helper()
	l, err := receipts.Open(data, receipts.Options{Clock: clockwork.NewRealClock()}) // repairs what the last kill left
	if err != nil {
		t.Fatal(err)
	}
	vkey, anchor := l.VerifierKey(), l.Checkpoint()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err = receipts.Verify(data, vkey, anchor, nil); err != nil {
		t.Fatal(err)
	}
	if code := report.Verdict.ExitCode(); code != exitDone {
		t.Errorf("verify: exit %d: %s", code, report.Why)
	}
	intents, outcomes = map[string]bool{}, map[string]int{}
	if err := receipts.Scan(filepath.Join(data, "receipts"), func(s receipts.Stored) error {
		switch s.Record.Kind {
		case receipts.KindIntent:
			intents[s.Record.RequestID] = true
		case receipts.KindOutcome:
			outcomes[s.Record.ID]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return intents, outcomes, report
}

// program is the gateway in a file of its own: in a drill as it is shipped, which takes
// a while to build, and else this test, which is the gateway under that name.
func program(t *testing.T, folder string) string {
	t.Helper()
	binary := filepath.Join(folder, "agentgw")
	if rounds(0, 1) == 0 {
		me, err := os.Executable()
		if err == nil {
			err = os.Symlink(me, binary)
		}
		if err != nil {
			t.Fatal(err)
		}
		return binary
	}
	build := exec.Command("go", "build", "-tags", "nomsgpack", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func ready(admin string) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		res, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return true
		}
	}
	return false
}
