package identity_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"agentgw/internal/identity"
)

const leaksConfig = "../../docs/gitleaks.toml"

// TestThePublishedPatternFindsKeys, each of them whole.
func TestThePublishedPatternFindsKeys(t *testing.T) {
	rules, err := os.ReadFile(leaksConfig)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^regex = '''(.*)'''$`).FindSubmatch(rules)
	if m == nil {
		t.Fatal("there is no pattern")
	}
	pattern := regexp.MustCompile(string(m[1]))
	for range 1000 {
		text, _ := identity.NewKey()
		if key := text.Reveal(); pattern.FindString("x="+key+"\n") != key {
			t.Fatalf("%s finds %q", m[1], pattern.FindString(key))
		}
	}
}

// TestGitleaksFindsAPlantedKey runs gitleaks itself, with the rule that is published.
// GITLEAKS names it; make interop fetches it.
func TestGitleaksFindsAPlantedKey(t *testing.T) {
	gitleaks := os.Getenv("GITLEAKS")
	if gitleaks == "" {
		t.Skip("GITLEAKS names no gitleaks; make interop fetches it")
	}
	config, err := filepath.Abs(leaksConfig)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := identity.NewKey()
	folder, report := t.TempDir(), filepath.Join(t.TempDir(), "report.json")
	for name, content := range map[string]string{"config.py": "KEY = '" + text.Reveal() + "'\n", "other.py": "KEY = 'agw_" + text.Reveal()[4:40] + "'\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(gitleaks, "dir", "--config", config, "--report-path", report, "--no-banner", folder)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 { // that of leaks found
		t.Fatalf("%v: %s", err, out)
	}
	found, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var leaks []struct{ RuleID, Secret, File string }
	if err := json.Unmarshal(found, &leaks); err != nil {
		t.Fatal(err)
	}
	if len(leaks) != 1 || leaks[0].RuleID != "agentgate-key" || leaks[0].Secret != text.Reveal() || filepath.Base(leaks[0].File) != "config.py" {
		t.Errorf("%+v", leaks)
	}
}
