package admin

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"agentgw/internal/explain"
)

// What Operations.Explain refuses with.
var (
	ErrNoSuchKey = errors.New("there is no such key")           // nor a caller of an issuer
	ErrClaims    = errors.New("the claims cannot be a token's") // of that caller
)

// explainLimits is GET /limits/explain. A parameter that is not known, missing
// or given twice is an error: the answer would be of another call than the one
// that is meant.
func explainLimits(o Operations) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, wrong := question(r.URL.RawQuery)
		if len(wrong) > 0 {
			fail(w, problem{Status: http.StatusBadRequest, Code: "bad_request", Parameters: wrong,
				Detail: "say which call: ?key=ID&service=S&action=A, and &user=U if it is on somebody's behalf, &client_ip=A if a rule looks at it, &claims={} of who comes with a token"})
			return
		}
		a, err := o.Explain(r.Context(), q)
		switch {
		case errors.Is(err, ErrClaims):
			fail(w, problem{Status: http.StatusBadRequest, Code: "bad_request", Detail: err.Error(), Parameters: []parameter{{"claims", "is not what a token of that caller says"}}})
		case errors.Is(err, ErrNoSuchKey):
			fail(w, problem{Status: http.StatusNotFound, Code: "not_found", Detail: err.Error(), Parameters: []parameter{{"key", "is not the id of a key"}}})
		case errors.Is(err, ErrStateAway):
			w.Header().Set("Retry-After", "5")
			fail(w, problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: err.Error()})
		case err != nil:
			fail(w, problem{Status: http.StatusInternalServerError, Code: "internal", Detail: err.Error()})
		default:
			answer(w, http.StatusOK, a)
		}
	}
}

// question reads the query strictly, and lists what is wrong with it.
func question(raw string) (q explain.Question, wrong []parameter) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, []parameter{{"", "the query cannot be read"}}
	}
	for _, p := range []struct {
		name     string
		into     *string
		required bool
	}{{"key", &q.Key, true}, {"service", &q.Service, true}, {"action", &q.Action, true}, {"user", &q.User, false}, {"client_ip", &q.ClientIP, false}, {"claims", &q.Claims, false}} {
		given := values[p.name]
		delete(values, p.name)
		switch {
		case len(given) == 0 && p.required:
			wrong = append(wrong, parameter{p.name, "is missing"})
		case len(given) == 1 && given[0] == "":
			wrong = append(wrong, parameter{p.name, "is empty"})
		case len(given) == 1:
			*p.into = given[0]
		case len(given) > 1:
			wrong = append(wrong, parameter{p.name, "is given more than once"})
		}
	}
	if _, err := netip.ParseAddr(q.ClientIP); q.ClientIP != "" && err != nil {
		wrong = append(wrong, parameter{"client_ip", "is not an IP address"})
	}
	if q.Claims != "" && !explain.IsCaller(q.Key) {
		wrong = append(wrong, parameter{"claims", "is for a key=oidc:ISSUER#SUBJECT, and says nothing of a key"})
	}
	others := make([]string, 0, len(values))
	for name := range values {
		others = append(others, name)
	}
	slices.Sort(others)
	for _, name := range others {
		wrong = append(wrong, parameter{name, "is not a parameter of this"})
	}
	return q, wrong
}
