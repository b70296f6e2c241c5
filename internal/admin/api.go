package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"agentgw/internal/secret"
)

// operate is /admin/v1/.
func operate(o Operations) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/v1/config", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, viewConfig(o.Config()))
	})
	mux.HandleFunc("POST /admin/v1/reload", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Reload(); err != nil {
			answer(w, http.StatusUnprocessableEntity, reloaded{Problems: viewProblems(err)})
			return
		}
		answer(w, http.StatusOK, reloaded{Reloaded: true, SHA256: o.Config().Running})
	})
	mux.HandleFunc("POST /admin/v1/drain", func(w http.ResponseWriter, _ *http.Request) {
		streams, others := o.Drain()
		answer(w, http.StatusOK, drained{true, streams, others})
	})
	tenants(mux, o)
	keys(mux, o)
	mux.HandleFunc("GET /admin/v1/limits/explain", explainLimits(o))
	mux.HandleFunc("GET /admin/v1/receipts", listReceipts(o))
	mux.HandleFunc("/admin/v1/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, problem{Status: http.StatusNotFound, Code: "not_found", Detail: "there is nothing at this path for this method"})
	})
	return mux
}

// problem is why a request was not done (RFC 9457).
type problem struct {
	Type       string      `json:"type"`
	Title      string      `json:"title"`
	Status     int         `json:"status"`
	Detail     string      `json:"detail"`
	Code       string      `json:"code"`
	Parameters []parameter `json:"parameters,omitempty"` // of the query, that are to blame
}

type parameter struct {
	Name string `json:"name"`
	What string `json:"what"`
}

// fail answers a problem, with the members filled in that follow from its status.
func fail(w http.ResponseWriter, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	w.Header().Set("Content-Type", "application/problem+json")
	answer(w, p.Status, p)
}

type reloaded struct {
	Reloaded bool          `json:"reloaded"`
	SHA256   string        `json:"sha256,omitempty"`
	Problems []problemView `json:"problems,omitempty"`
}

type drained struct {
	Draining bool `json:"draining"`
	Streams  int  `json:"streams_to_end"`
	Others   int  `json:"calls_to_finish"`
}

// authorized lets through who has the token. It is compared in constant time,
// an empty one never matches, and nor does a good one beside a second line.
func authorized(token secret.Text, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines := r.Header.Values("Authorization")
		if len(lines) == 1 {
			scheme, given, _ := strings.Cut(lines[0], " ")
			if strings.EqualFold(scheme, "Bearer") && token.Equal(strings.TrimSpace(given)) {
				next.ServeHTTP(w, r)
				return
			}
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="agentgate operators"`)
		fail(w, problem{Status: http.StatusUnauthorized, Code: "unauthenticated",
			Detail: "send the operators' token, as Authorization: Bearer ...; where none is set it is in the file admin-token of the data folder"})
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked may be gone
}

// stamp writes a time as receipts do, in UTC.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
