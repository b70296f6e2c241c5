package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documented is a block of shell lines of a page, and what it says they print.
type documented struct{ lines, prints string }

var (
	// shellBlock is one, with the block of its output if that follows at once.
	shellBlock = regexp.MustCompile("(?s)\n```sh\n(.*?)```\n(?:\n```\n(.*?)```\n)?")
	// What differs from run to run: ids, times, waits, and how columns stand under them.
	anyTime   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	anyID     = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	anyWait   = regexp.MustCompile(`wait [0-9hms.µ]+`)
	anyTail   = regexp.MustCompile(`(?m) +\d+ +\d+$`) // bytes and milliseconds of a receipt
	anySpaces = regexp.MustCompile(` +`)
)

func alike(text string) string {
	text = anyTime.ReplaceAllString(text, "TIME")
	text = anyID.ReplaceAllString(text, "ID")
	text = anyWait.ReplaceAllString(text, "wait LONG")
	text = anyTail.ReplaceAllString(text, " BYTES MS")
	return anySpaces.ReplaceAllString(text, " ")
}

// TestTryingLimits: every line of docs/trying-limits.md does beside a demo what the
// page says.
func TestTryingLimits(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/trying-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []documented
	for _, m := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, documented{m[1], m[2]})
	}
	if len(blocks) < 9 {
		t.Fatalf("only %d blocks of shell lines", len(blocks))
	}
	d, _ := startDemo(t)
	besideDemo(t, d, blocks)
}

// TestDocumentedProof: the lines of docs/calling.md with which a caller keeps a
// proof make one that verifies.
func TestDocumentedProof(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/calling.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)\n```\n([^`]*?jq -j .proof[^`]*)```\n").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/calling.md has no such lines")
	}
	d, lines := startDemo(t)
	besideDemo(t, d, []documented{{
		lines: "GATEWAY=http://127.0.0.1:8080 KEY=" + d.Key + "\n" +
			`ID=$(` + lines + ` | tr -d '\r' | sed -n 's/^[Aa]gentgate-[Rr]eceipt: id="\([0-9a-f]*\)".*/\1/p')` + "\n" +
			strings.Replace(string(m[1]), "--vkey log.vkey", "--vkey log.vkey | sed -n 1p", 1) +
			"echo >> receipt.tlog-proof\n./agentgw receipts verify receipt.tlog-proof --vkey log.vkey | grep -o 'a line end too many.*' || true\n",
		prints: "verdict HOLDS\na line end too many, as jq -r adds one: write it with jq -j\n",
	}})
}

// startDemo runs a demo and returns what it says of itself, and its line for an
// allowed call.
func startDemo(t *testing.T) (demonstration, string) {
	t.Helper()
	needsShell(t)
	demo := exec.Command("agentgw", "demo", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	demo.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "AGENTGATE_RATE_KEY_RPS=1") // which it does not look at
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = demo.Process.Signal(syscall.SIGINT)
		_ = demo.Wait()
	})
	var d demonstration
	for said := bufio.NewScanner(out); said.Scan(); {
		line := said.Text()
		switch {
		case d.Agents == "":
			if _, err := fmt.Sscanf(strings.ReplaceAll(line, ",", " ,"), "AgentGate demo: the gateway is on %s , operators on %s", &d.Agents, &d.Operators); err != nil {
				t.Fatal(line, err)
			}
			d.Operators = strings.TrimSuffix(d.Operators, ".")
		case strings.HasPrefix(line, "curl") && d.Allowed == "":
			d.Allowed = line
			d.Key, _, _ = strings.Cut(line[strings.Index(line, "agw_"):], "'")
		case strings.HasPrefix(line, "DEMO="):
			d.Data = strings.TrimPrefix(line, "DEMO=")
		case strings.HasPrefix(line, "Ctrl-C"):
			return d, d.Allowed
		}
	}
	t.Fatal("the demo ended")
	return d, ""
}

// needsShell leaves a test out on a machine without what a reader of the pages has.
func needsShell(t *testing.T) {
	t.Helper()
	for _, name := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("a reader of the page has %s: %v", name, err)
		}
	}
}

// besideDemo runs blocks of a page in one shell, as a reader would whose demo is d,
// and holds what each prints against the page.
func besideDemo(t *testing.T, d demonstration, blocks []documented) {
	t.Helper()
	const end = "--- the end of a block ---"
	here := strings.NewReplacer("/tmp/agentgw-demo-123456789", d.Data, "127.0.0.1:8080", d.Agents, "127.0.0.1:9090", d.Operators)
	page := strings.NewReplacer(d.Data, "/tmp/agentgw-demo-123456789")
	script := "set -eu -o pipefail\n"
	for _, b := range blocks {
		script += here.Replace(b.lines) + "echo '" + end + "'\n"
	}
	folder := t.TempDir()
	me, err := exec.LookPath("agentgw")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(me, filepath.Join(folder, "agentgw")); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("bash", "-c", script)
	shell.Dir = folder
	var complaints strings.Builder
	shell.Stderr = &complaints
	out, err := shell.Output()
	printed := strings.Split(string(out), end+"\n")
	if err != nil || len(printed) != len(blocks)+1 {
		t.Fatalf("%v after %d of %d blocks: %s\n%s", err, len(printed)-1, len(blocks), complaints.String(), out)
	}
	for i, b := range blocks {
		if b.prints == "" {
			continue
		}
		if diff := cmp.Diff(alike(b.prints), alike(page.Replace(printed[i]))); diff != "" {
			t.Errorf("the page (-) and the program (+) after\n%s%s\nit was\n%s", b.lines, diff, page.Replace(printed[i]))
		}
	}
}

// TestDocumentedExplain: the answer in docs/operating.md is that of the registry
// above it.
func TestDocumentedExplain(t *testing.T) {
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)\n```yaml\n([^`]*)```\n\n```sh\n./(agentgw explain [^`]*)\n```\n\n```\n([^`]*)```\n").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/operating.md has no such example")
	}
	command := strings.Fields(string(m[2]))
	explain := exec.Command(command[0], command[1:]...)
	explain.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(explain.Dir, "registry.yaml"), m[1], 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := explain.Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(m[3]), string(out)); diff != "" {
		t.Errorf("%s\nit was\n%s", diff, out)
	}
}
