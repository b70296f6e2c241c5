package gateway

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// addSuite adds the files of JSONTestSuite as seeds, each as a whole and within a call.
func addSuite(f *testing.F) {
	files, err := filepath.Glob("testdata/json-test-suite/test_parsing/*.json")
	if err != nil || len(files) != 318 {
		f.Fatal(len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) > 10_000 { // those that only nest, which seeds of their size would spend the time on
			continue
		}
		f.Add(text)
		f.Add([]byte(`{"service":"s","action":"a","params":{"x":` + string(text) + `}}`))
		f.Add([]byte(`{"service":"s","action":"a","on_behalf_of":` + string(text) + `}`))
	}
}

// holdsAs says what is wrong with an act that was read of raw, if another reader of JSON sees
// another one in it.
func holdsAs(a act, raw []byte) string {
	var seen struct {
		Service   string          `json:"service"`
		Action    string          `json:"action"`
		Principal string          `json:"on_behalf_of"`
		Params    json.RawMessage `json:"params"`
	}
	switch err := json.Unmarshal(raw, &seen); {
	case err != nil:
		return "no other reader takes it: " + err.Error()
	case a.Service != seen.Service || a.Action != seen.Action || a.Principal != seen.Principal || !bytes.Equal(a.Params, seen.Params):
		return "another reader sees something else"
	case a.Service == "" || a.Action == "" || len(a.Service) > 256 || len(a.Action) > 256 || len(a.Principal) > 256:
		return "a name is missing or too long"
	}
	return ""
}

func FuzzParseAct(f *testing.F) {
	f.Add([]byte(`{"service":"a","action":"b","params":{"n":9007199254740993}}`))
	addSuite(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseAct(raw)
		if err != nil {
			return
		}
		if wrong := holdsAs(a, raw); wrong != "" {
			t.Errorf("%s: %q is %+v", wrong, raw, a)
		}
	})
}

// FuzzParseBatch: what is read as a batch is so many acts, each of which would be read as the
// same one by itself; and what is an act by itself is one in a batch.
func FuzzParseBatch(f *testing.F) {
	f.Add([]byte(`{"service":"a","action":"b","params":{"n":1}},{"service":"a","action":"b","on_behalf_of":"u"}`))
	addSuite(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		text := []byte(`{"calls":[` + string(raw) + `]}`)
		all, calls, err := parseBatch(text)
		alone, unread := parseAct(raw)
		if err != nil {
			if unread == nil {
				t.Errorf("an act, and no batch of one: %q, %v", raw, err)
			}
			return
		}
		var seen struct {
			Calls []json.RawMessage `json:"calls"`
		}
		if err := json.Unmarshal(text, &seen); err != nil || len(seen.Calls) != len(calls) || len(calls) == 0 || len(calls) > maxBatch || all != "" {
			t.Fatalf("%q is %d calls, and to another reader %d, %v", text, len(calls), len(seen.Calls), err)
		}
		for i, c := range calls {
			a, err := parseAct(seen.Calls[i])
			a.size = int64(len(seen.Calls[i]))
			if wrong := holdsAs(c, seen.Calls[i]); err != nil || !reflect.DeepEqual(a, c) || wrong != "" {
				t.Errorf("%q in a batch is %+v, and by itself %+v, %v %s", seen.Calls[i], c, a, err, wrong)
			}
		}
		if len(calls) == 1 && unread == nil && alone.Service != calls[0].Service {
			t.Errorf("%q is %+v", raw, alone)
		}
	})
}
