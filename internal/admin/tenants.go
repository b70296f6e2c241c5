package admin

import (
	"errors"
	"net/http"
	"time"
)

// ErrNoSuchTenant is what Operations return for a tenant that nobody knows: no
// key is charged to it, the registry does not name it, it has not called lately
// and is not blocked.
var ErrNoSuchTenant = errors.New("there is no such tenant")

// Tenant is whom calls are charged to, and how it stands.
type Tenant struct {
	ID       string // its full name, such as tenant:acme or key:ci-bot:overflow
	InFlight int64
	Queued   int64 // calls that wait for a slot
	Queue    int   // the most that may; 0: nobody waits
	Cap      int64 // 0: none
	Bucket   Bucket
	Blocked  bool
	// Overflow: the table is full, and this is shared by all that have this limit
	// and no place of their own; or it is one of those.
	Overflow    bool
	LastRefusal LastRefusal
	Keys        []TenantKey // nil where it is one of many
}

// Bucket is a rate and what is left of it. The zero Bucket is a limit that is off.
type Bucket struct {
	RPS              float64
	Burst, Remaining int64
}

// LastRefusal is the newest refusal of a tenant's call, by the step that takes
// tokens and slots. The zero LastRefusal is none that is remembered.
type LastRefusal struct {
	At          time.Time
	Code, Limit string // as the agent was told
	Tenant      string // whose call it was
}

// TenantKey is a key that has calls charged to a tenant.
type TenantKey struct {
	ID       string
	Bucket   Bucket
	Services []ServiceBucket // that the key may call and that have a rate
}

// ServiceBucket is a key's bucket at one service.
type ServiceBucket struct {
	Service string
	Bucket  Bucket
}

type tenantView struct {
	ID          string          `json:"id"`
	InFlight    int64           `json:"in_flight"`
	Queued      int64           `json:"queued"`
	Queue       int             `json:"max_queued"`
	Cap         *int64          `json:"max_inflight"` // null: none
	Bucket      *bucketView     `json:"bucket"`       // null: no limit
	Blocked     bool            `json:"blocked"`
	Overflow    bool            `json:"overflow"`
	LastRefusal *refusalView    `json:"last_refusal"` // null: none that is remembered
	Keys        []tenantKeyView `json:"keys,omitempty"`
}

type bucketView struct {
	RPS       float64 `json:"rps"`
	Burst     int64   `json:"burst"`
	Remaining int64   `json:"remaining"`
}

type refusalView struct {
	At     string `json:"at"`
	Code   string `json:"code"`
	Limit  string `json:"limit,omitempty"`
	Tenant string `json:"tenant,omitempty"` // where it is not the row's own
}

type tenantKeyView struct {
	ID       string              `json:"id"`
	Bucket   *bucketView         `json:"bucket"`
	Services []serviceBucketView `json:"services"`
}

type serviceBucketView struct {
	Service string      `json:"service"`
	Bucket  *bucketView `json:"bucket"`
}

func viewTenant(t Tenant) tenantView {
	v := tenantView{ID: t.ID, InFlight: t.InFlight, Queued: t.Queued, Queue: t.Queue, Bucket: viewBucket(t.Bucket), Blocked: t.Blocked, Overflow: t.Overflow}
	if t.Cap > 0 {
		v.Cap = &t.Cap
	}
	if l := t.LastRefusal; l.Code != "" {
		v.LastRefusal = &refusalView{At: stamp(l.At), Code: l.Code, Limit: l.Limit}
		if l.Tenant != t.ID {
			v.LastRefusal.Tenant = l.Tenant
		}
	}
	for _, k := range t.Keys {
		key := tenantKeyView{k.ID, viewBucket(k.Bucket), []serviceBucketView{}}
		for _, s := range k.Services {
			key.Services = append(key.Services, serviceBucketView{s.Service, viewBucket(s.Bucket)})
		}
		v.Keys = append(v.Keys, key)
	}
	return v
}

func viewBucket(b Bucket) *bucketView {
	if b.Burst == 0 {
		return nil
	}
	return &bucketView{b.RPS, b.Burst, b.Remaining}
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
		t, err := o.Tenant(r.PathValue("id"))
		if err != nil {
			noTenant(w, err)
			return
		}
		answer(w, http.StatusOK, viewTenant(t))
	})
	mux.HandleFunc("POST /admin/v1/tenants/{id}/block", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		ahead, wrong := isAhead(r.URL.RawQuery)
		if wrong != nil {
			fail(w, problem{Status: http.StatusBadRequest, Code: "bad_request", Parameters: wrong,
				Detail: "nobody was blocked: the one parameter is ahead=true, which blocks a tenant that nobody knows yet"})
			return
		}
		known, ended, err := o.Block(id, ahead)
		if err != nil {
			noTenant(w, err)
			return
		}
		answer(w, http.StatusOK, blocked{id, true, known, ended})
	})
	mux.HandleFunc("POST /admin/v1/tenants/{id}/unblock", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		was, err := o.Unblock(id)
		if err != nil {
			noTenant(w, err)
			return
		}
		answer(w, http.StatusOK, unblocked{id, false, was})
	})
}

func noTenant(w http.ResponseWriter, err error) {
	fail(w, problem{Status: http.StatusNotFound, Code: "not_found", Detail: err.Error()})
}

// isAhead reads the query of a block: nothing, or ahead=true.
func isAhead(query string) (ahead bool, wrong []parameter) {
	switch query {
	case "":
		return false, nil
	case "ahead=true":
		return true, nil
	}
	return false, []parameter{{query, "is not a parameter of this"}}
}

type blocked struct {
	ID      string `json:"id"`
	Blocked bool   `json:"blocked"`
	Known   bool   `json:"known"`
	Ended   int    `json:"calls_ended"`
}

type unblocked struct {
	ID      string `json:"id"`
	Blocked bool   `json:"blocked"`
	Was     bool   `json:"was_blocked"`
}
