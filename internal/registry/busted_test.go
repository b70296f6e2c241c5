package registry_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
)

var update = flag.Bool("update", false, "write the messages of testdata/busted anew; read the difference before keeping it")

// TestBusted reads files with one mistake each, and compares the whole message
// with the one that stands beside the file.
func TestBusted(t *testing.T) {
	files, err := filepath.Glob("testdata/busted/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := registry.Parse(name, data)
			var problems registry.Problems
			if snapshot != nil && snapshot.File != "" || !errors.As(err, &problems) {
				t.Fatalf("accepted, or an error of another type: %v", err)
			}
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
