package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Key is a gateway key as operators see it: never its text, and no hash of it.
type Key struct {
	ID         string       `json:"id"`
	From       string       `json:"from,omitempty"` // "the state store", or the place in the registry file
	State      string       `json:"state"`          // valid, pending, expired or revoked
	Services   []string     `json:"services"`
	Actions    []string     `json:"actions,omitempty"`
	Users      []string     `json:"users"`
	Tenant     string       `json:"tenant,omitempty"`
	RPS        *float64     `json:"rps,omitempty"`
	Burst      *int         `json:"burst,omitempty"`
	User       string       `json:"user,omitempty"`
	Space      string       `json:"space,omitempty"`
	Org        string       `json:"org,omitempty"`
	CreatedAt  *time.Time   `json:"created_at,omitempty"`
	NotBefore  *time.Time   `json:"not_before,omitempty"`
	ExpiresAt  *time.Time   `json:"expires_at,omitempty"`
	RevokedAt  *time.Time   `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time   `json:"last_used_at,omitempty"` // of the newest secret
	Retiring   *RetiringKey `json:"retiring,omitempty"`
}

// RetiringKey is the older of two secrets of a key, while it is valid.
type RetiringKey struct {
	ExpiresAt  time.Time  `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

// NewKey is what a key is to be, as the flags of agentgw keys create say it.
type NewKey struct {
	ID        string       `json:"id"`
	Services  []string     `json:"services"`
	Actions   []string     `json:"actions"` // nil: every action of the services
	Users     []string     `json:"users"`
	Tenant    *string      `json:"tenant"`
	RPS       *json.Number `json:"rps"`
	Burst     *json.Number `json:"burst"`
	User      string       `json:"user"`
	Space     string       `json:"space"`
	Org       string       `json:"org"`
	NotBefore *string      `json:"not_before"` // a time, such as 2026-12-01T00:00:00Z
	Expires   *string      `json:"expires"`    // a duration from now, such as 720h
}

// UnfitKey is why a key cannot be made as it was asked for.
type UnfitKey struct{ Err error }

func (e UnfitKey) Error() string { return e.Err.Error() }

// Why a key cannot be changed as it is. The errors that are these say more.
var (
	ErrKeyExists = errors.New("there is a key of that id")
	ErrKeyOfFile = errors.New("the key is declared in the registry file")
)

// ErrStateAway says that the state that processes share cannot be asked now. A change may have
// been made or not.
var ErrStateAway = errors.New("nothing can be changed or listed now; when it is back, look whether a change was made")

// Keys makes, lists and revokes gateway keys. Every error may be ErrStateAway.
type Keys interface {
	// Keys lists those of the registry file and of the state store, revoked ones
	// too, by id.
	Keys(context.Context) ([]Key, error)
	// CreateKey stores a new key and returns its text, which is nowhere else. The
	// error is an UnfitKey or ErrKeyExists, or why it could not be stored.
	CreateKey(context.Context, NewKey) (text string, err error)
	// RevokeKey revokes a key of the state store, at once and for good, and ends
	// what runs with it. One that is revoked already stays so. The error is
	// ErrNoSuchKey or ErrKeyOfFile, or why it could not be stored.
	RevokeKey(ctx context.Context, id string) error
}

const maxNewKey = 64 << 10

// keys is what operators do with keys.
func keys(mux *http.ServeMux, o Keys) {
	mux.HandleFunc("GET /admin/v1/keys", func(w http.ResponseWriter, r *http.Request) {
		list, err := o.Keys(r.Context())
		if err != nil {
			keyFailed(w, "", err)
			return
		}
		answer(w, http.StatusOK, map[string][]Key{"keys": list})
	})
	mux.HandleFunc("POST /admin/v1/keys", func(w http.ResponseWriter, r *http.Request) {
		ask, err := readNewKey(http.MaxBytesReader(w, r.Body, maxNewKey))
		if err != nil {
			fail(w, problem{Status: http.StatusBadRequest, Code: "bad_request", Detail: "no key was made: " + err.Error()})
			return
		}
		text, err := o.CreateKey(r.Context(), ask)
		if err != nil {
			keyFailed(w, "no key was made: ", err)
			return
		}
		answer(w, http.StatusCreated, map[string]string{"id": ask.ID, "key": text})
	})
	mux.HandleFunc("DELETE /admin/v1/keys/{id}", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		if err := o.RevokeKey(r.Context(), id); err != nil {
			keyFailed(w, "no key was revoked: ", err)
			return
		}
		answer(w, http.StatusOK, map[string]any{"id": id, "revoked": true})
	})
}

func keyFailed(w http.ResponseWriter, undone string, err error) {
	p := problem{Status: http.StatusInternalServerError, Code: "internal", Detail: undone + err.Error()}
	var unfit UnfitKey
	switch {
	case errors.As(err, &unfit):
		p.Status, p.Code = http.StatusBadRequest, "bad_request"
	case errors.Is(err, ErrNoSuchKey):
		p.Status, p.Code = http.StatusNotFound, "not_found"
	case errors.Is(err, ErrKeyExists), errors.Is(err, ErrKeyOfFile):
		p.Status, p.Code = http.StatusConflict, "conflict"
	case errors.Is(err, ErrStateAway):
		w.Header().Set("Retry-After", "5")
		p.Status, p.Code, p.Detail = http.StatusServiceUnavailable, "unavailable", err.Error()
	}
	fail(w, p)
}

// readNewKey reads the body strictly: a member that is not known may be a limit that
// somebody believes in. Errors repeat none of it but that name.
func readNewKey(body io.Reader) (ask NewKey, err error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return ask, errors.New("the body cannot be read, or is over 64 KiB")
	}
	var members map[string]jsontext.Value
	if strict.Unmarshal(text, &members) != nil || members == nil { // which takes no name twice
		return ask, errors.New("the body is not a JSON object, or has a name twice")
	}
	for name := range members {
		if !strings.Contains(newKeyMembers, " "+name+" ") || strings.Contains(name, " ") {
			return ask, errors.New("the body has a member that is not one of" + strings.TrimRight(newKeyMembers, " "))
		}
	}
	if json.Unmarshal(text, &ask) != nil {
		return ask, errors.New("a member of the body has a value of another kind: id, tenant, user, space, org, not_before and expires are texts, services, actions and users lists of texts, rps and burst numbers")
	}
	return ask, nil
}

const newKeyMembers = " id services actions users tenant rps burst user space org not_before expires "
