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
	mux.HandleFunc("POST /admin/v1/reload", func(w http.ResponseWriter, r *http.Request) {
		if err := o.Reload(r.Context()); err != nil {
			answer(w, http.StatusUnprocessableEntity, reloaded{Problems: viewProblems(err)})
			return
		}
		answer(w, http.StatusOK, reloaded{Reloaded: true, SHA256: o.Config().Running})
	})
	tenants(mux, o)
	mux.HandleFunc("/admin/v1/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, fault{"not_found", "there is nothing at this path for this method"})
	})
	return mux
}

type fault struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

type reloaded struct {
	Reloaded bool          `json:"reloaded"`
	SHA256   string        `json:"sha256,omitempty"`
	Problems []problemView `json:"problems,omitempty"`
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
		answer(w, http.StatusUnauthorized, fault{"unauthenticated",
			"send the operators' token, as Authorization: Bearer ...; where none is set it is in the file admin-token of the data folder"})
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked may be gone
}

// stamp writes a time as receipts do, in UTC.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
