package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatReadsMakesNothing: a folder that is not there, or that no gateway has
// used, is an error and stays as it is.
func TestWhatReadsMakesNothing(t *testing.T) {
	b := newBench(t, "")
	for _, args := range []string{"keys list", "keys list --json", "keys revoke k", "credentials list", "credentials remove --service s"} {
		for _, existing := range []bool{false, true} {
			folder := "missing"
			want := "agentgw: missing: no data folder there: has a gateway run with it (--data)?\n"
			if existing {
				folder = b.t.TempDir()
				want = "agentgw: " + folder + ": no state.db there: has a gateway run with it (--data)?\n"
			}
			stdout, stderr := b.want(exitCannotRun, append(strings.Split(args, " "), "--data", folder)...)
			if stdout != "" || stderr != want {
				t.Errorf("%s: it says %q and %q, want %q", args, stdout, stderr, want)
			}
			if left, err := os.ReadDir(folder); existing != (err == nil) || len(left) > 0 {
				t.Errorf("%s: it left %v, %v", args, left, err)
			}
		}
	}
}

// TestANewDataFolderIsTold: before the first start a key and a credential can be
// stored, and a folder made by mistake is seen.
func TestANewDataFolderIsTold(t *testing.T) {
	b := newBench(t, "")
	for _, args := range []string{"keys create --id k --services * --users *", "credentials set --service s"} {
		folder := filepath.Join(t.TempDir(), "new")
		command := append(strings.Split(args, " "), "--data", folder)
		code, _, stderr := b.run("a secret of some length", command...)
		if want := "agentgw: made a new data folder " + folder + "\n"; code != exitDone || stderr != want {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, stderr, want)
		}
		if code, _, stderr := b.run("a secret of some length", append(command, "--user", "u")...); code != exitDone && !strings.Contains(args, "keys") || strings.Contains(stderr, "made a new") {
			t.Errorf("%s again: exit code %d, %q", args, code, stderr)
		}
	}
}
