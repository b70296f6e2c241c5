package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"agentgw/internal/freeport"
)

// walk runs what a reader of README and of a page types, in one folder with the sample
// registry, whose services on the internet are one on this machine here.
func walk(t *testing.T, lines string) {
	t.Helper()
	for _, name := range []string{"bash", "curl", "jq", "openssl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("a reader of the page has %s: %v", name, err)
		}
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") }))
	t.Cleanup(upstream.Close)
	sample, err := os.ReadFile("../../registry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	here := regexp.MustCompile(`base_url: https://\S+`).ReplaceAllString(string(sample), "base_url: "+upstream.URL+"\n    allow_private: true")

	// A refused call ends the shell. What was just made is waited for as long as it
	// takes: that this is two seconds is for tests with a clock of their own.
	lines = strings.ReplaceAll(lines, "curl -i ", "curl -sS --fail --retry 30 --retry-delay 1 --retry-all-errors ")
	lines = regexp.MustCompile(`(?m)^sleep 2 .*$`).ReplaceAllString(lines, "")
	lines = regexp.MustCompile(`(?m) +# exit (\d+).*$`).ReplaceAllString(lines, " && exit 1 || [ $$? = $1 ]")
	d := demonstration{Agents: freeport.Address(t), Operators: freeport.Address(t), Data: "./data"}
	besideDemo(t, d, []documented{{lines: `
export GORACE="${GORACE:-} atexit_sleep_ms=0" # else each command lasts a second longer under the race detector
cat > registry.yaml << 'END'
` + here + `
END
./agentgw serve --registry registry.yaml --data ./data --listen 127.0.0.1:8080 --admin-listen 127.0.0.1:9090 > serve.log 2>&1 &
SERVE=$!
trap 'kill $SERVE; wait $SERVE' EXIT
curl -sS --fail --retry 30 --retry-delay 1 --retry-all-errors http://127.0.0.1:9090/readyz 2> /dev/null
SEARCH_TOKEN=search-token-1 GITHUB_TOKEN=github-token-1
` + lines}})
}

// plainBlocks are the blocks of commands below a heading of a page, to the next of its level.
func plainBlocks(t *testing.T, file, heading string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut("\n"+string(page), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no %q", file, heading)
	}
	if strings.HasPrefix(heading, "## ") {
		rest, _, _ = strings.Cut(rest, "\n## ")
	}
	for _, m := range regexp.MustCompile("(?s)\n```(\\w*)\n(.*?)```").FindAllStringSubmatch(rest, -1) {
		if m[1] == "" && !strings.HasPrefix(m[2], "--") {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}

// TestReadmeWalk: the calls and the receipts of README, one after the other.
func TestReadmeWalk(t *testing.T) {
	t.Parallel()
	running, receipts := plainBlocks(t, "../../README.md", "## Running it"), plainBlocks(t, "../../README.md", "## Receipts")
	if len(running) != 2 || len(receipts) != 2 { // the first builds and serves
		t.Fatalf("%d and %d blocks", len(running), len(receipts))
	}
	walk(t, running[1]+strings.Join(receipts, ""))
}

// TestDelegationWalk: docs/delegation.md from top to bottom.
func TestDelegationWalk(t *testing.T) {
	t.Parallel()
	blocks := plainBlocks(t, "../../docs/delegation.md", "# Delegations")
	if len(blocks) != 4 {
		t.Fatalf("%d blocks", len(blocks))
	}
	walk(t, strings.Join(blocks, ""))
}

// TestTunnelsWalk: what docs/tunnels.md has to try.
func TestTunnelsWalk(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tunnels.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)\n```sh\n(cat >> registry.yaml .*?)```\n").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/tunnels.md has nothing to try")
	}
	walk(t, string(m[1]))
}
