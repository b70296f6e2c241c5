package rules_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

var update = flag.Bool("update", false, "write the messages of testdata/busted anew; read the difference before keeping it")

// TestBusted compiles files with one mistake each, and compares the whole message
// with the one that stands beside the file.
func TestBusted(t *testing.T) {
	files, err := filepath.Glob("testdata/busted/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := registry.Parse(name, data)
			if err != nil {
				t.Fatal(err)
			}
			set, err := rules.Compile(s)
			var problems registry.Problems
			if set != nil || !errors.As(err, &problems) {
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

// TestWhatCouldBeRead: of a registry with other mistakes, the expressions that
// could be read are looked at all the same.
func TestWhatCouldBeRead(t *testing.T) {
	s, err := registry.Parse("r.yaml", []byte("rules:\n  - {name: Bad, key: usr, window: 1m, max: 01}\n  - {name: b, window: 1m, when: 1}\n  - {}\n  - x\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	_, err = rules.Compile(s)
	if want := "r.yaml:2:22: rules[0].key: undeclared reference to 'usr' (did you mean 'user'?) (at character 1)\nr.yaml:3:33: rules[1].when: yields a number, not true or false"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if set, err := rules.Compile(nil); set != nil || err != nil {
		t.Error(set, err)
	}
}
