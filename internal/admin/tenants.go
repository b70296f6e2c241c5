package admin

import "net/http"

// Tenant is a tenant that has called lately, or is blocked.
type Tenant struct {
	ID       string // its full name, such as tenant:acme or key:ci-bot:overflow
	InFlight int64
	Cap      int64 // 0: none
	// Of its bucket: calls a second, the most it holds, and what is left. All 0:
	// no limit.
	RPS              float64
	Burst, Remaining int64
	Blocked          bool
	Overflow         bool // shared by those of one limit that found the table full
}

type tenantView struct {
	ID       string      `json:"id"`
	InFlight int64       `json:"in_flight"`
	Cap      *int64      `json:"max_inflight"` // null: none
	Bucket   *bucketView `json:"bucket"`       // null: no limit
	Blocked  bool        `json:"blocked"`
	Overflow bool        `json:"overflow"`
}

type bucketView struct {
	RPS       float64 `json:"rps"`
	Burst     int64   `json:"burst"`
	Remaining int64   `json:"remaining"`
}

func viewTenant(t Tenant) tenantView {
	v := tenantView{ID: t.ID, InFlight: t.InFlight, Blocked: t.Blocked, Overflow: t.Overflow}
	if t.Cap > 0 {
		v.Cap = &t.Cap
	}
	if t.Burst > 0 {
		v.Bucket = &bucketView{t.RPS, t.Burst, t.Remaining}
	}
	return v
}

// tenants is what operators see of tenants and do to them. A tenant's id is one
// segment of the path; its colons may stand as they are or as %3A.
func tenants(mux *http.ServeMux, o Operations) {
	mux.HandleFunc("GET /admin/v1/tenants", func(w http.ResponseWriter, _ *http.Request) {
		list := []tenantView{}
		for _, t := range o.Tenants() {
			list = append(list, viewTenant(t))
		}
		answer(w, http.StatusOK, map[string][]tenantView{"tenants": list})
	})
	mux.HandleFunc("GET /admin/v1/tenants/{id}", func(w http.ResponseWriter, r *http.Request) {
		for _, t := range o.Tenants() {
			if t.ID == r.PathValue("id") {
				answer(w, http.StatusOK, viewTenant(t))
				return
			}
		}
		fail(w, problem{Status: http.StatusNotFound, Code: "not_found", Detail: "no tenant of that id has called lately or is blocked"})
	})
	mux.HandleFunc("POST /admin/v1/tenants/{id}/block", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, blocked{r.PathValue("id"), true, o.Block(r.PathValue("id"))})
	})
	mux.HandleFunc("POST /admin/v1/tenants/{id}/unblock", func(w http.ResponseWriter, r *http.Request) {
		o.Unblock(r.PathValue("id"))
		answer(w, http.StatusOK, blocked{r.PathValue("id"), false, 0})
	})
}

type blocked struct {
	ID      string `json:"id"`
	Blocked bool   `json:"blocked"`
	Ended   int    `json:"calls_ended"`
}
