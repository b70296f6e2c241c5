package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
)

// dialect is the shape in which a service's own clients understand a refusal. The zero
// dialect is native: problem details (RFC 9457).
type dialect struct {
	name    string // a dialect of the registry
	request string // the id of the request
}

// dialectOf is that of what is asked of a service by /proxy; nil is no service. Of a
// service that is not native the paths of Anthropic's Messages API are its dialect's: clients
// of both are pointed at one service.
func dialectOf(service *registry.Service, path, requestID string) dialect {
	d := dialect{request: requestID}
	if service != nil && service.Dialect != registry.DialectNative {
		d.name = service.Dialect
		if strings.HasSuffix(path, "/v1/messages") || strings.HasSuffix(path, "/v1/messages/count_tokens") {
			d.name = registry.DialectAnthropic
		}
	}
	return d
}

// The shapes, with their members in the order in which the services themselves have them.
type (
	openAIRefusal struct {
		Error any `json:"error"` // openAIError
	}
	openAIError struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	anthropicRefusal struct {
		Type      string `json:"type"`
		Error     any    `json:"error"` // anthropicError
		RequestID string `json:"request_id"`
	}
	anthropicError struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
)

// requestField has the id that Anthropic's clients show, the same as in the body.
func (d dialect) requestField() string { return "req_" + d.request }

// body is a refusal in a dialect that is not native.
func (d dialect) body(e *Error) []byte {
	var v any = openAIRefusal{d.error(e)}
	if d.name == registry.DialectAnthropic {
		v = anthropicRefusal{Type: "error", Error: d.error(e), RequestID: d.requestField()}
	}
	b, _ := json.Marshal(v) // texts only: cannot fail
	return b
}

// error is the member of that name.
func (d dialect) error(e *Error) any {
	status := e.status()
	if d.name == registry.DialectAnthropic {
		return anthropicError{Type: typeOf(status), Message: e.Message}
	}
	said := openAIError{Message: e.Message, Type: typeOf(status), Code: string(e.Code)}
	switch {
	case status == http.StatusTooManyRequests:
		said.Code = "rate_limit_exceeded"
	case status == http.StatusUnauthorized:
		said.Code = "invalid_api_key"
	}
	return said
}

// typeOf is how both name what kind of error a status is.
func typeOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// event is a refusal as the last event of a stream, for clients that look for one.
func (d dialect) event(e *Error) []byte {
	text := "data: " + string(d.body(e)) + "\n\n"
	if d.name == registry.DialectAnthropic {
		text = "event: error\n" + text
	}
	return []byte(text)
}

// cutBy is what a client of a stream of events is told about how that ended before its
// end, or nil where that is the client's own doing.
func cutBy(ending receipts.Ending, service string) *Error {
	switch ending {
	case receipts.Shutdown:
		return draining()
	case receipts.Blocked:
		return refuse(TenantBlocked, tenantBlocked)
	case receipts.Revoked:
		return refuse(Unauthenticated, "the key or the delegation was revoked or is over")
	case receipts.Timeout:
		return refuse(UpstreamTimeout, "%s was silent for too long, or its stream grew too old", service)
	case receipts.Budget:
		return refuse(UpstreamUnreachable, "%s answered with more than the %d bytes that a batch keeps of a body; call it by itself", service, maxKept)
	case receipts.UpstreamAborted:
		return refuse(UpstreamUnreachable, "%s broke off in its answer", service)
	}
	return nil
}

// sayWhy tells a client of a stream of events, in its service's dialect, why it is about
// to be cut off; nil says nothing. Between two events only: in one it would be taken for a
// part of that.
func sayWhy(out *answer, e *Error) {
	if e == nil || out.dialect.name == "" || !out.begun || out.failed != nil {
		return
	}
	_, _ = out.Write(out.dialect.event(e))
	_ = out.FlushError()
}

// fields are those that clients of these dialects read besides.
func (d dialect) fields(fields []string, e *Error) []string {
	if d.name == registry.DialectAnthropic {
		fields = append(fields, "Request-Id", d.requestField())
	}
	if e.status() == http.StatusTooManyRequests {
		full := e.Full
		if full <= 0 {
			full = e.Wait
		}
		fields = append(fields,
			"X-Ratelimit-Limit-Requests", strconv.FormatInt(e.Quota, 10),
			"X-Ratelimit-Remaining-Requests", "0",
			"X-Ratelimit-Reset-Requests", inWords(full).String())
	}
	return fields
}

// fullIn is how long a limit takes to be whole again; 0 where that is not known.
func fullIn(r ratelimit.Reading) time.Duration {
	switch {
	case r.Gauge || r.Next <= 0:
		return 0
	case r.Name != "":
		return r.Next // a window
	}
	return r.Next + time.Duration(max(0, r.Quota-r.Remaining-1))*(r.Window/time.Duration(max(1, r.Quota)))
}
