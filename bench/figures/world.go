package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"agentgw/internal/identity"
)

const (
	manyKeys  = 1000
	bodySize  = 243
	rate      = "100000"
	dryKey    = manyKeys // a key of one call in 55 minutes
	wrongKey  = manyKeys + 1
	tenantCap = "64"
)

// world is what the contenders are asked for, and where.
type world struct {
	folder, registry string
	keys             []string
}

// newWorld writes a registry of so many keys and one service at the stub.
func newWorld(upstream string) (*world, error) {
	folder, err := os.MkdirTemp("", "agentgw-bench-")
	if err != nil {
		return nil, err
	}
	w := &world{folder: folder, registry: filepath.Join(folder, "registry.yaml")}
	var text strings.Builder
	fmt.Fprintf(&text, "version: 1\nservices:\n  tools:\n    base_url: http://%s\n    allow_private: true\n    credential: {type: bearer}\n"+
		"    rate_limit: {rps: %s, burst: %s}\n    actions:\n", upstream, rate, rate)
	for _, path := range []string{"small", "large", "events"} {
		fmt.Fprintf(&text, "      %s: {method: POST, path: /%s, params: {query: string}}\n", path, path)
	}
	fmt.Fprintf(&text, "      stream: {method: GET, path: /stream, params: {query: string}}\n  plain:\n    base_url: http://%s\n    allow_private: true\n"+
		"    actions: {later: {method: POST, path: /later, params: {query: string}}}\nkeys:\n", upstream)
	for i := range manyKeys + 1 {
		key, digest := identity.NewKey()
		limits := ""
		if i == dryKey {
			limits = ", limits: {rps: 0.0003, burst: 1}"
		}
		fmt.Fprintf(&text, "  - {id: key-%d, sha256: \"%x\", services: [tools, plain], users: [\"*\"]%s}\n", i, digest, limits)
		w.keys = append(w.keys, key.Reveal())
	}
	stranger, _ := identity.NewKey()
	w.keys = append(w.keys, stranger.Reveal())
	return w, os.WriteFile(w.registry, []byte(text.String()), 0o600)
}

// gateway starts one with every control on and no limit within reach.
func (w *world) gateway(binary, name string, flags ...string) (*process, error) {
	data := filepath.Join(w.folder, name)
	set := exec.Command(binary, "credentials", "set", "--service", "tools", "--registry", w.registry, "--data", data)
	set.Stdin = strings.NewReader("the-credential-of-the-service")
	if out, err := set.CombinedOutput(); err != nil {
		return nil, errors.Join(err, errors.New(string(out)))
	}
	return gateway(binary, w.registry, data, append([]string{
		"--rate-key-rps", rate, "--rate-key-burst", rate, "--rate-tenant-rps", rate, "--rate-tenant-burst", rate,
		"--tenant-max-inflight", tenantCap, "--rate-auth-per-minute", "0"}, flags...)...)
}

// acts are calls of an action through the gateway, by each of the keys in turn.
func (w *world) acts(action string, keys ...int) []string {
	body := fmt.Sprintf(`{"service":"tools","action":%q,"params":{"query":""}}`, action)
	body = body[:len(body)-3] + strings.Repeat("q", bodySize-len(body)) + body[len(body)-3:]
	return w.requests("POST /v1/act", body, keys)
}

// posts are the same calls without a gateway.
func (w *world) posts(path string) []string {
	return w.requests("POST "+path, w.acts("small")[0][strings.Index(w.acts("small")[0], "\r\n\r\n")+4:], nil)
}

func (w *world) gets(path string) []string { return w.requests("GET "+path, "", nil) }

// requests are one by each key, or by the first manyKeys where none is named.
func (w *world) requests(start, body string, keys []int) []string {
	if len(keys) == 0 {
		for i := range manyKeys {
			keys = append(keys, i)
		}
	}
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = request(start, w.keys[k], body)
	}
	return list
}

// request is one by the bearer of key.
func request(start, key, body string) string {
	length := ""
	if body != "" {
		length = fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return fmt.Sprintf("%s HTTP/1.1\r\nHost: gateway.example\r\nAccept: application/json\r\nAuthorization: Bearer %s\r\n%s\r\n%s",
		start, key, length, body)
}
