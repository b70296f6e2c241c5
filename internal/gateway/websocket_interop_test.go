package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// peerSessions is how many sessions each client has with each service, once where messages
// are charged and once where none is: a thousand of each client, and two more.
const peerSessions = 167

// TestWebSocketPeers: four programs that nobody here wrote speak WebSocket through the
// gateway with three of them as services: npm's ws and undici, Python's websockets and
// github.com/coder/websocket. In a thousand sessions each (subprotocols, an extension that
// is asked for, all lengths of frames, fragments, pings between them, messages without
// waiting, closes by either side with codes and reasons) none gets anything else than what
// was sent. What they say stands in interop/websocket/session.mjs.
func TestWebSocketPeers(t *testing.T) {
	node, coder, python := os.Getenv("INTEROP_NODE"), os.Getenv("INTEROP_WSPEER"), os.Getenv("INTEROP_WEBSOCKETS")
	if node == "" || coder == "" {
		t.Skip("run by make interop, which knows where they are")
	}
	folder, err := filepath.Abs("../../interop/websocket")
	if err != nil {
		t.Fatal(err)
	}
	services := map[string][]string{"ws": {node, folder + "/ws.mjs"}, "coder": {coder}}
	clients := map[string][]string{"ws": {node, folder + "/ws.mjs"}, "undici": {node, folder + "/undici.mjs"}, "coder": {coder}}
	if python == "" {
		t.Log("Python's websockets was not asked")
	} else {
		services["websockets"], clients["websockets"] = []string{python, folder + "/peer.py"}, []string{python, folder + "/peer.py"}
	}
	file := "version: 1\ntenants: {wide: {rps: 100000, burst: 100000, max_inflight: 100000}}\nservices:\n"
	for name, command := range services {
		url := startPeer(t, append(command, "serve"))
		file += fmt.Sprintf("  %s: {base_url: %q, allow_private: true, passthrough: true, websocket: {}}\n", name, url)
		file += fmt.Sprintf("  %s-charged: {base_url: %q, allow_private: true, passthrough: true, websocket: {charge: [create]}}\n", name, url)
	}
	w := setup{registry: file, settings: func(s *config.Settings) { s.MaxRequestBody = 4 << 20 }}.world(t, hello, wide("k"))
	for client, command := range clients {
		t.Run(client, func(t *testing.T) {
			sessions := 0
			for service := range services {
				for _, kind := range []string{"", "-charged"} {
					url := "ws" + strings.TrimPrefix(w.server.URL, "http") + "/proxy/" + service + kind + "/talk"
					out, err := exec.CommandContext(t.Context(), command[0], append(command[1:], url, w.keys["k"], fmt.Sprint(peerSessions))...).Output()
					var said struct {
						Sessions, Wrong int
						First           []string
					}
					if err != nil || json.Unmarshal(out, &said) != nil {
						t.Fatalf("%s%s: %v %s", service, kind, err, out)
					}
					if said.Wrong > 0 || said.Sessions != peerSessions {
						t.Errorf("%s%s: %d sessions, %d disagreements:\n%s", service, kind, said.Sessions, said.Wrong, strings.Join(said.First, "\n"))
					}
					sessions += said.Sessions
				}
			}
			t.Logf("%s: %d sessions", client, sessions)
		})
	}
	w.idle("tenant:wide")
	endings := map[receipts.Ending]int{}
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindOutcome {
			endings[r.Ending]++
		}
	}
	if want := len(clients) * len(services) * 2 * peerSessions; len(endings) != 1 || endings[receipts.Complete] != want {
		t.Errorf("the endings: %v, want %d complete", endings, want)
	}
}

// startPeer starts a service that prints its address, and ends it with the test.
func startPeer(t *testing.T, command []string) string {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	lines := make(chan string, 1)
	go func() {
		if s := bufio.NewScanner(out); s.Scan() {
			lines <- s.Text()
		}
		close(lines)
	}()
	select {
	case url := <-lines:
		if url != "" {
			return url
		}
	case <-time.After(30 * time.Second):
	}
	t.Fatalf("%q tells no address", command)
	return ""
}
