package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// result is one of a batch's, as an agent reads it.
type result struct {
	Status   int               `json:"status"`
	Headers  map[string]string `json:"headers"`
	Body     json.RawMessage   `json:"body"`
	Encoding string            `json:"encoding"`
	Trailers map[string]string `json:"trailers"`
	Receipt  string            `json:"receipt"`
}

func (r result) code() string { return r.Headers["Agentgate-Code"] }

// batch sends a batch of these calls, and returns what it got and the results in it.
func (w *world) batch(key string, calls ...string) (told, []result) {
	w.t.Helper()
	got := w.do(w.batchRequest(key, `{"calls":[`+strings.Join(calls, ",")+`]}`))
	return got, w.results(got)
}

func (w *world) batchRequest(key, body string) *http.Request {
	r := w.request(w.t.Context(), key, body)
	r.URL.Path = "/v1/batch"
	return r
}

func (w *world) results(got told) []result {
	w.t.Helper()
	var said struct{ Results []result }
	if got.status == 200 {
		if err := json.Unmarshal([]byte(got.body), &said); err != nil {
			w.t.Fatalf("%v: %.500s", err, got.body)
		}
	}
	return said.Results
}

func getCall(id any) string {
	return fmt.Sprintf(`{"service":"tools","action":"get","params":{"id":"%v"}}`, id)
}

func times(n int, call string) []string {
	calls := make([]string, n)
	for i := range calls {
		calls[i] = call
	}
	return calls
}

// TestBatch: results come in the order of the calls, each with what the call by itself
// would have had, and a receipt of its own; the batch has none.
func TestBatch(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Path", r.URL.Path)
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"path":"%s","n":9007199254740993}`, r.URL.Path)
	}, everything("k"))
	calls := []string{getCall("a"), `{"service":"nobody","action":"get"}`, getCall(".."), getCall("b"), `{"service":"keyed","action":"get","params":{"id":"1"}}`}
	got, results := w.batch("k", calls...)
	if got.status != 200 || got.header.Get("Content-Type") != "application/json" || got.header.Get("Agentgate-Receipt") != "" || len(results) != len(calls) {
		t.Fatalf("%d %v %s", got.status, got.header, got.body)
	}
	batch := got.header.Get("X-Request-Id")
	seen := map[string]bool{}
	for i, r := range results {
		alone := w.act("k", calls[i])
		if r.Status != alone.status || r.code() != alone.code {
			t.Errorf("call %d: %+v, and by itself %d %s", i, r, alone.status, alone.code)
		}
		if id := r.Headers["X-Request-Id"]; id != fmt.Sprint(batch, "-", i) {
			t.Errorf("call %d: request %s of %s", i, id, batch)
		}
		if r.Receipt == "" || seen[r.Receipt] || !strings.HasPrefix(r.Headers["Agentgate-Receipt"], `id="`+r.Receipt+`"`) || r.Encoding == "" {
			t.Errorf("call %d: %+v", i, r)
		}
		seen[r.Receipt] = true
		if alone.code != "" && r.Encoding != "json" || !strings.Contains(alone.header.Get("Ratelimit"), `"key"`) || strings.Contains(r.Headers["Ratelimit"], `"key"`) {
			t.Errorf("call %d: %+v", i, r)
		}
		for name := range alone.header {
			if _, there := r.Headers[name]; !there && name != "Date" && !strings.HasPrefix(name, "Ratelimit") {
				t.Errorf("call %d: %s is missing: %+v", i, name, r.Headers)
			}
		}
	}
	if string(results[3].Body) != `{"path":"/get/b","n":9007199254740993}` || results[3].Headers["X-Path"] != "/get/b" || results[3].Headers["Ratelimit"] == "" {
		t.Errorf("%+v %s", results[3], results[3].Body)
	}
	for _, r := range w.ledger.all()[:7] {
		if !seen[r.ID] || r.Key != "k" || r.Tenant != "key:k" || !strings.HasPrefix(r.RequestID, batch+"-") {
			t.Errorf("%+v", r)
		}
	}
}
