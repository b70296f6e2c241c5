package gateway_test

import (
	"log/slog"
	"strings"
	"testing"
)

// TestNobodyWritesLogLines: what an agent writes, in whatever it sends, ends no line of
// the log and begins none (CVE-2025-25294).
func TestNobodyWritesLogLines(t *testing.T) {
	w := setup{level: slog.LevelDebug}.world(t, hello, tireless("k"))
	for _, text := range []string{"a\"}\x1b[31m", "a\\nlevel=ERROR msg=forged", "a\u2028b\u202ec", "%0alevel=ERROR", "a\u0085b", "a=b \"c\""} {
		header := []string{"User-Agent", text, "X-Request-Id", text, "Traceparent", text}
		for i := range header {
			header[i] = strings.ReplaceAll(header[i], "\x1b", "") // no header holds one
		}
		w.relayedBy("k", "GET", "tools/get/1", "", append(header, "Agentgate-On-Behalf-Of", header[1])...)
		w.relayedBy("k", "GET", strings.NewReplacer("\"", "%22", "\x1b", "%1b", "\\", "%5c", " ", "%20", "[", "%5b", "}", "%7d").Replace(text)+"/x", "", header...)
		w.relayedBy("", "GET", "tools/get/1", "", header...)
		for _, body := range []string{
			`{"service":` + quoted(text) + `,"action":"get"}`, `{"service":"tools","action":` + quoted(text) + `}`, `{"service":"tools","action":"get","on_behalf_of":` + quoted(text) + `}`,
			`{"service":"tools","action":"get","params":{"id":` + quoted(text) + `,` + quoted(text) + `:1}}`,
		} {
			w.act("k", body)
		}
	}
	lines := strings.Split(strings.TrimSuffix(w.logged.String(), "\n"), "\n")
	if len(lines) < 20 {
		t.Errorf("%d lines: this shows nothing", len(lines))
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "time=") || strings.ContainsAny(line, "\x1b\r\x7f\u0085\u2028\u202e") || strings.Contains(line, " level=ERROR") {
			t.Errorf("%q", line)
		}
	}
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\x1b", `\u001b`).Replace(s) + `"`
}
