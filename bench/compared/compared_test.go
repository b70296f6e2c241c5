package compared

import (
	"flag"
	"os"
	"testing"
)

const pageFile = "../../docs/limiters-compared.md"

var write = flag.Bool("write", false, "write docs/limiters-compared.md anew")

// TestCompared asks everybody everything, and holds the page to the answers. Ours
// must fail nowhere.
func TestCompared(t *testing.T) {
	p := newPage(t)
	for _, of := range properties() {
		for _, who := range peers {
			r := ask(who, of)
			if who.module == "" && r.verdict == fails {
				t.Errorf("%s: %s", of.name, r.history)
			}
			p.add(of, who, r)
		}
	}
	want := p.text()
	if *write {
		if err := os.WriteFile(pageFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of step: run `make compare`, or go test ./compared -write in bench/, and look at what changed", pageFile)
	}
}
