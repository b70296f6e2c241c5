package ratelimit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheProbeDoesAllThatScriptsDo: a store whose user may not do some of it is found out
// when it is asked whether it is back, and not by the calls that need it.
func TestTheProbeDoesAllThatScriptsDo(t *testing.T) {
	files, err := filepath.Glob("queries/*.lua")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	commands := regexp.MustCompile(`\bcall\('([A-Z]+)'`)
	var all, probed []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range commands.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
			if strings.HasSuffix(file, "probe.lua") || m[1] == "TIME" { // which comes before each
				probed = append(probed, m[1])
			}
		}
	}
	for _, command := range all {
		if !slices.Contains(probed, command) {
			t.Errorf("the probe does no %s, which a script does", command)
		}
	}
}
