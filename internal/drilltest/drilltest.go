// Package drilltest has drills say what they measured: a table of what was done, the
// figure, and the bound that it is held to.
package drilltest

import (
	"fmt"
	"os"
	"testing"
)

// Row tells of one drill. It is logged, and comes to the end of the file that the environment's
// DRILLS_TABLE names, which begins with the names of the columns. A bound that is missed
// fails the test under DRILLS=full alone: most are of time, and elsewhere the machine
// may have other things to do.
func Row(t testing.TB, drill, done, figure, bound string, met bool) {
	t.Helper()
	verdict := "MET"
	if !met {
		verdict = "MISSED"
	}
	row := line(drill, done, figure, bound, verdict)
	t.Log(row)
	if !met && os.Getenv("DRILLS") == "full" {
		t.Errorf("%s: %s; the bound is %s", drill, figure, bound)
	}
	name := os.Getenv("DRILLS_TABLE")
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() == 0 {
		row = line("drill", "what was done", "figure", "bound", "") + "\n" + row
	}
	if _, err := fmt.Fprintln(file, row); err != nil {
		t.Fatal(err)
	}
}

func line(drill, done, figure, bound, verdict string) string {
	return fmt.Sprintf("%-30s | %-66s | %-72s | %-40s | %s", drill, done, figure, bound, verdict)
}
