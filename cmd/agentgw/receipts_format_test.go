package main

import (
	"os"
	"strings"
	"testing"

	"agentgw/internal/gateway"
	"agentgw/internal/receipts"
)

// TestFormatListsWhatIsWritten: a second reader knows from FORMAT.md every code
// and ending that this version writes.
func TestFormatListsWhatIsWritten(t *testing.T) {
	text, err := os.ReadFile("../../internal/receipts/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range gateway.Codes() {
		if !strings.Contains(string(text), "`"+string(c)+"`") {
			t.Errorf("code %s", c)
		}
	}
	for _, e := range receipts.Endings() {
		if !strings.Contains(string(text), "`"+string(e)+"`") {
			t.Errorf("ending %s", e)
		}
	}
}
