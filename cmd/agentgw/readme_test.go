package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"agentgw/internal/config"
)

// TestSettingsInStep: README and `serve --help` list every setting with its
// default, and README no other.
func TestSettingsInStep(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := &cli{stdin: strings.NewReader(""), stdout: &out, stderr: &out}
	if code := c.run([]string{"serve", "--help"}); code != exitDone {
		t.Fatalf("serve --help: exit %d\n%s", code, out.String())
	}
	rows := config.Table()
	for _, r := range rows {
		if line := fmt.Sprintf("| `%s` | %s | %s |\n", r.Name, r.Default, r.Meaning); !bytes.Contains(readme, []byte(line)) {
			t.Errorf("README lacks the line %s", line)
		}
		if !strings.Contains(out.String(), r.Flag+" ") {
			t.Errorf("serve --help lacks %s", r.Flag)
		}
	}
	if got := strings.Count(string(readme), "\n| `AGENTGATE_"); got != len(rows) {
		t.Errorf("README lists %d settings, there are %d", got, len(rows))
	}
}
