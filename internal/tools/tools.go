// Package tools is the small tool service that `agentgw demo` puts behind the
// gateway, and that tests use as an upstream: it answers plain JSON, streams
// events, and fails when asked to. It checks that it was called with the
// credential that the gateway holds, since agents have none.
package tools

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jonboulle/clockwork"
)

// Handler returns the service. Calls must carry the bearer token; the clock
// paces the stream.
func Handler(token string, clock clockwork.Clock) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", search)
	mux.HandleFunc("GET /ticks", func(w http.ResponseWriter, r *http.Request) { ticks(w, r, clock) })
	mux.HandleFunc("POST /notes", note)
	mux.HandleFunc("GET /fail", fail)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "the tool service wants its own credential", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func search(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"query":   r.URL.Query().Get("q"),
		"results": []string{"the first thing found", "the second thing found"},
	})
}

// ticks sends `count` events, one every `every` milliseconds.
func ticks(w http.ResponseWriter, r *http.Request, clock clockwork.Clock) {
	count, err := strconv.Atoi(r.URL.Query().Get("count"))
	if err != nil || count < 0 {
		count = 5
	}
	every, err := strconv.Atoi(r.URL.Query().Get("every"))
	if err != nil || every < 1 {
		every = 300
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for i := range count {
		if i > 0 {
			select {
			case <-r.Context().Done():
				return
			case <-clock.After(time.Duration(every) * time.Millisecond):
			}
		}
		if _, err := fmt.Fprintf(w, "event: tick\ndata: {\"n\":%d}\n\n", i+1); err != nil {
			return
		}
		if control.Flush() != nil {
			return
		}
	}
}

func note(w http.ResponseWriter, r *http.Request) {
	var in map[string]any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"error": "not JSON"})
		return
	}
	answer(w, http.StatusCreated, map[string]any{"noted": in})
}

// fail answers with the status asked for, or cuts the answer half-way.
func fail(w http.ResponseWriter, r *http.Request) {
	status, err := strconv.Atoi(r.URL.Query().Get("status"))
	if err != nil || status < 200 || status > 599 {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("half of an ans"))
		_ = http.NewResponseController(w).Flush() // or nothing at all would arrive
		panic(http.ErrAbortHandler)
	}
	answer(w, status, map[string]any{"failed": status})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
}
