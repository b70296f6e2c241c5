package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/freeport"
)

// TestProxyPage: the lines of docs/proxy.md do, in an empty folder, what the page says.
func TestProxyPage(t *testing.T) {
	t.Parallel()
	pasted(t, "../../docs/proxy.md", 2, "")
}

// TestWebSocketPage: so do those of docs/websocket.md, with the ws that make interop has
// installed in place of npm's newest.
func TestWebSocketPage(t *testing.T) {
	node := os.Getenv("INTEROP_NODE")
	if node == "" {
		t.Skip("make interop has Node and ws")
	}
	t.Setenv("PATH", filepath.Dir(node)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	modules, err := filepath.Abs("../../interop/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	pasted(t, "../../docs/websocket.md", 1, "ln -s "+modules+" node_modules")
}

// pasted runs the shell lines of a page, of so many blocks, in an empty folder. They
// begin with a gateway of their own, which has free addresses here, as 9200 is one.
func pasted(t *testing.T, file string, blocks int, install string) {
	t.Helper()
	needsShell(t)
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := demonstration{Agents: freeport.Address(t), Operators: freeport.Address(t), Data: t.TempDir()}
	_, service, _ := strings.Cut(freeport.Address(t), ":")
	here := strings.NewReplacer(
		"agentgw demo ", "TMPDIR="+d.Data+" agentgw demo --listen "+d.Agents+" --admin-listen "+d.Operators+" ",
		"agentgw serve ", "agentgw serve --listen "+d.Agents+" --admin-listen "+d.Operators+" ",
		"npm install --silent ws", install, "9200", service)
	var lines []documented
	for _, m := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		if m[2] != "" {
			lines = append(lines, documented{here.Replace(m[1]), m[2]})
		}
	}
	if len(lines) != blocks {
		t.Fatalf("%s has %d blocks of lines with what they print", file, len(lines))
	}
	lines[0].lines = "trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT\n" + lines[0].lines
	besideDemo(t, d, lines)
}
