package gateway

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestJSONIsReadAsTheRFCSays asks the 318 files of JSONTestSuite
// (github.com/nst/JSONTestSuite, MIT) as a parameter: what is no JSON is refused, what
// must be read is, but for names that stand twice, and of the rest no reader panics.
func TestJSONIsReadAsTheRFCSays(t *testing.T) {
	files, err := filepath.Glob("testdata/json-test-suite/test_parsing/*.json")
	if err != nil || len(files) != 318 {
		t.Fatal(len(files), err)
	}
	twice := []string{"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		a, err := parseAct([]byte(`{"service":"s","action":"a","params":{"x":` + string(text) + `}}`))
		if _, calls, wrong := parseBatch([]byte(`{"calls":[{"service":"s","action":"a","params":{"x":` + string(text) + `}}]}`)); (wrong == nil) != (err == nil) ||
			err == nil && string(calls[0].Params) != string(a.Params) {
			t.Errorf("%s: in a batch it is read otherwise: %v, and by itself %v", name, wrong, err)
		}
		switch {
		case strings.HasPrefix(name, "y_") && slices.Contains(twice, name) == (err == nil):
			t.Errorf("%s: %v", name, err)
		case strings.HasPrefix(name, "y_") && err == nil && string(a.Params) != `{"x":`+string(text)+`}`:
			t.Errorf("%s: other bytes: %.200q", name, a.Params)
		case strings.HasPrefix(name, "n_") && err == nil:
			t.Errorf("%s is read: %.200q", name, text)
		}
	}
}
