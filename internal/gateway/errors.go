package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Code says why a call was refused. The list is closed: the same code is on the
// wire, in the receipt and in the metric.
type Code string

// The codes, in the order in which the pipeline can meet them.
const (
	Unauthenticated      Code = "unauthenticated"
	RateLimited          Code = "rate_limited"
	BadRequest           Code = "bad_request"
	MethodNotAllowed     Code = "method_not_allowed"
	BodyTooLarge         Code = "body_too_large"
	ScopeDenied          Code = "scope_denied"
	ServiceNotFound      Code = "service_not_found"
	ActionNotFound       Code = "action_not_found"
	ConcurrencyLimited   Code = "concurrency_limited"
	TenantBlocked        Code = "tenant_blocked"
	DelegationInvalid    Code = "delegation_invalid"
	DelegationRequired   Code = "delegation_required"
	CredentialMissing    Code = "credential_missing"
	CredentialRefresh    Code = "credential_refresh_failed"
	BadParams            Code = "bad_params"
	UpstreamUnreachable  Code = "upstream_unreachable"
	UpstreamRedirect     Code = "upstream_redirect"
	UpstreamTimeout      Code = "upstream_timeout"
	ReceiptUnavailable   Code = "receipt_unavailable"
	Draining             Code = "draining"
	LimitsUnavailable    Code = "limits_unavailable"
	NestedCall           Code = "nested_call"
	Internal             Code = "internal"
	quotaExceededProblem      = "https://iana.org/assignments/http-problem-types#quota-exceeded"
)

var statuses = map[Code]int{
	Unauthenticated: 401, RateLimited: 429, BadRequest: 400, MethodNotAllowed: 405,
	BodyTooLarge: 413, ScopeDenied: 403, ServiceNotFound: 404, ActionNotFound: 404,
	ConcurrencyLimited: 429, TenantBlocked: 403, DelegationInvalid: 403,
	DelegationRequired: 403, CredentialMissing: 403, CredentialRefresh: 502,
	BadParams: 400, UpstreamUnreachable: 502, UpstreamRedirect: 502,
	UpstreamTimeout: 504, ReceiptUnavailable: 503, Draining: 503,
	LimitsUnavailable: 503, NestedCall: 409, Internal: 500,
}

// Codes returns every code, by name.
func Codes() []Code { return slices.Sorted(maps.Keys(statuses)) }

// Error is a refusal. Message is for the agent, Err for the log alone: nothing
// of it reaches the wire, since it may hold what an upstream said.
type Error struct {
	Code     Code
	Message  string
	Limit    string        // the limit that decided, empty where none did
	Violated []string      // every policy that refused, as RateLimit-Policy names it
	Wait     time.Duration // true wait; 0 where waiting does not help
	Never    bool          // no wait would help
	Quotes   bool          // Message repeats what only the caller wrote, which may be a secret in the wrong place: not for the log
	Ran      bool          // the upstream may have acted: an SDK must not try again
	Status   int           // 0: the code's own
	Quota    int64         // of the limit that decided
	Full     time.Duration // until that limit is whole again; 0: not known
	Allow    string        // of MethodNotAllowed, the methods; "": POST
	Last     bool          // of its connection: what follows might be a part of what was refused
	Err      error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) status() int {
	if e.Status != 0 {
		return e.Status
	}
	return statuses[e.Code]
}

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type         string   `json:"type"`
	Title        string   `json:"title"`
	Status       int      `json:"status"`
	Detail       string   `json:"detail"`
	Code         Code     `json:"code"`
	Limit        string   `json:"limit,omitempty"`
	Violated     []string `json:"violated-policies,omitempty"`
	RetryAfterMS int64    `json:"retry_after_ms,omitempty"`
	Receipt      string   `json:"receipt,omitempty"`
}

// problemOf is a refusal as problem details, and the wait that it tells.
func problemOf(e *Error, receipt string, jitter func(time.Duration) time.Duration) (p problem, told time.Duration) {
	status := e.status()
	p = problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: e.Message, Code: e.Code, Limit: e.Limit, Violated: e.Violated, Receipt: receipt,
	}
	if status == http.StatusTooManyRequests {
		p.Type, p.Title = quotaExceededProblem, "Quota exceeded"
	}
	if e.Wait > 0 {
		told = e.Wait + jitter(e.Wait)
		p.RetryAfterMS = int64((told + time.Millisecond - 1) / time.Millisecond)
	}
	return p, told
}

// writeError answers a refusal. It is the one place where an error becomes an
// answer, in the dialect of the answer's service if w knows of one. The wait that it tells is the true one plus jitter, never less: a
// crowd that was refused together must not come back together.
func writeError(w http.ResponseWriter, e *Error, receipt string, jitter func(time.Duration) time.Duration) {
	status := e.status()
	p, told := problemOf(e, receipt, jitter)
	var room [30]string
	fields := append(room[:0], "Agentgate-Code", string(e.Code), "Cache-Control", "no-store")
	if e.Wait > 0 {
		fields = append(fields, "Retry-After", strconv.FormatInt(wholeSeconds(e.Wait, told), 10), "Retry-After-Ms", strconv.FormatInt(p.RetryAfterMS, 10))
	}
	if e.Last {
		fields = append(fields, "Connection", "close")
	}
	// SDKs wait as told up to a minute, and else come back when they please.
	if e.Never || e.Ran || e.Wait > time.Minute {
		fields = append(fields, "X-Should-Retry", "false")
	}
	if status == http.StatusUnauthorized {
		fields = append(fields, "Www-Authenticate", `Bearer realm="agentgate"`)
	}
	if status == http.StatusProxyAuthRequired {
		fields = append(fields, "Proxy-Authenticate", `Basic realm="agentgate"`)
	}
	if status == http.StatusMethodNotAllowed {
		fields = append(fields, "Allow", cmp.Or(e.Allow, http.MethodPost))
	}
	var body []byte
	if a, ok := w.(*answer); ok && a.dialect.name != "" {
		body = a.dialect.body(e)
		fields = a.dialect.fields(fields, e)
		fields = append(fields, "Content-Type", "application/json")
	} else {
		body, _ = json.Marshal(p) // strings and integers only: cannot fail
		fields = append(fields, "Content-Type", "application/problem+json")
	}
	setFields(w.Header(), append(fields, "Content-Length", strconv.Itoa(len(body))))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may be gone; the receipt is written
}

// setFields sets fields, each a name as net/http keeps names and a value, and makes one
// slice for all of them: Set makes one for each, which is most of what a refusal costs.
func setFields(h http.Header, fields []string) {
	values := make([]string, 0, len(fields)/2)
	for i := 0; i < len(fields); i += 2 {
		n := len(values)
		values = append(values, fields[i+1])
		h[fields[i]] = values[n : n+1 : n+1]
	}
}
