package oidctest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Provider is a program of the folder interop over npm's oidc-provider, which make
// interop installs. It takes a line and answers it with one.
type Provider struct {
	URL string // the issuer: its first line

	t      testing.TB
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// StartProvider starts a program by its path, until the test ends. The test is
// skipped where INTEROP_NODE names no node, as everywhere but in make interop.
func StartProvider(t testing.TB, program string, args ...string) *Provider {
	t.Helper()
	node := os.Getenv("INTEROP_NODE")
	if node == "" {
		t.Skip("make interop asks oidc-provider")
	}
	cmd := exec.CommandContext(t.Context(), node, append([]string{program}, args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	p := &Provider{t: t, stdin: stdin, stdout: bufio.NewReader(stdout)}
	p.URL = p.line()
	return p
}

// Ask gives the program a line, and returns the one that it answers.
func (p *Provider) Ask(line string) string {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
	return p.line()
}

func (p *Provider) line() string {
	p.t.Helper()
	text, err := p.stdout.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(text)
}
