package gateway

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestCodesInStep: docs/calling.md lists every code with its status, and no other.
func TestCodesInStep(t *testing.T) {
	page, err := os.ReadFile("../../docs/calling.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[Code]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\|").FindAllSubmatch(page, -1) {
		code := Code(row[1])
		if listed[code] != "" {
			t.Errorf("docs/calling.md lists %s twice", code)
		}
		listed[code] = string(row[2])
	}
	for code, status := range statuses {
		if want := strconv.Itoa(status); listed[code] != want {
			t.Errorf("docs/calling.md gives %s the status %q, the gateway %q", code, listed[code], want)
		}
	}
	if len(listed) != len(statuses) {
		t.Errorf("docs/calling.md lists %d codes, there are %d", len(listed), len(statuses))
	}
}
