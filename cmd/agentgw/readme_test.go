package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

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

// TestCommandsInStep: README has a line for every command, and for no other.
func TestCommandsInStep(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(agentgw [a-z]+(?: [a-z-]+)?)").FindAllSubmatch(readme, -1) {
		listed[string(row[1])] = true
	}
	have := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			have[cmd.CommandPath()] = true
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	root := (&cli{}).rootCommand()
	walk(root)
	have[root.Name()+" completion"] = true // cobra's own, added when it runs
	if diff := cmp.Diff(slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(listed))); diff != "" {
		t.Errorf("the commands (-) and README's (+):\n%s", diff)
	}
}

// TestSettingsNamedExist: the pages for users name no setting that is none.
func TestSettingsNamedExist(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	have := map[string]bool{}
	for _, r := range config.Table() {
		have[r.Name] = true
	}
	for _, file := range append(files, "../../README.md") {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("AGENTGATE_[A-Z_]+").FindAllString(string(page), -1) {
			if !have[name] {
				t.Errorf("%s names %s, which is no setting", file, name)
			}
		}
	}
}
