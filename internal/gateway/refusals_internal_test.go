package gateway

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/registry"
)

// refusals are all codes, with what a refusal is to clients of each dialect: its status,
// the type of both, and OpenAI's code.
var refusals = map[Code]struct {
	status     int
	kind, code string
}{
	Unauthenticated:     {401, "authentication_error", "invalid_api_key"},
	RateLimited:         {429, "rate_limit_error", "rate_limit_exceeded"},
	BadRequest:          {400, "invalid_request_error", "bad_request"},
	MethodNotAllowed:    {405, "invalid_request_error", "method_not_allowed"},
	BodyTooLarge:        {413, "request_too_large", "body_too_large"},
	ScopeDenied:         {403, "permission_error", "scope_denied"},
	ServiceNotFound:     {404, "not_found_error", "service_not_found"},
	ActionNotFound:      {404, "not_found_error", "action_not_found"},
	ConcurrencyLimited:  {429, "rate_limit_error", "rate_limit_exceeded"},
	TenantBlocked:       {403, "permission_error", "tenant_blocked"},
	DelegationInvalid:   {403, "permission_error", "delegation_invalid"},
	DelegationRequired:  {403, "permission_error", "delegation_required"},
	CredentialMissing:   {403, "permission_error", "credential_missing"},
	CredentialRefresh:   {502, "api_error", "credential_refresh_failed"},
	BadParams:           {400, "invalid_request_error", "bad_params"},
	UpstreamUnreachable: {502, "api_error", "upstream_unreachable"},
	UpstreamRedirect:    {502, "api_error", "upstream_redirect"},
	UpstreamTimeout:     {504, "timeout_error", "upstream_timeout"},
	ReceiptUnavailable:  {503, "overloaded_error", "receipt_unavailable"},
	Draining:            {503, "overloaded_error", "draining"},
	LimitsUnavailable:   {503, "overloaded_error", "limits_unavailable"},
	NestedCall:          {409, "invalid_request_error", "nested_call"},
	Internal:            {500, "api_error", "internal"},
}

// written is a refusal as a client gets it: its status, its header as sorted lines
// without what net/http adds, and its body.
func written(t *testing.T, d dialect, e *Error) (status int, header []string, body string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := newAnswer(w, clockwork.NewFakeClock(), 0)
		a.dialect = d
		writeError(a, e, "RECEIPT", func(time.Duration) time.Duration { return 0 })
	}))
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	res.Header.Del("Date")
	for name, values := range res.Header {
		header = append(header, strings.ToLower(name)+": "+strings.Join(values, " | "))
	}
	slices.Sort(header)
	return res.StatusCode, header, string(text)
}

// TestEveryRefusalInEveryDialect: every code, every byte of its body, every field of its
// header, and of the event that ends a stream with it.
func TestEveryRefusalInEveryDialect(t *testing.T) {
	for _, code := range Codes() {
		want, known := refusals[code]
		if !known {
			t.Errorf("%s: nobody has said how it is told", code)
			continue
		}
		e := &Error{Code: code, Message: "why\n\"<b>\"", Limit: "tenant", Violated: []string{"tenant", "key"}, Wait: 1200 * time.Millisecond, Quota: 40, Full: 2*time.Minute + 3*time.Second}
		const why = `why\n\"\u003cb\u003e\"`
		openAI := fmt.Sprintf(`{"error":{"message":"%s","type":"%s","param":null,"code":"%s"}}`, why, want.kind, want.code)
		anthropic := fmt.Sprintf(`{"type":"error","error":{"type":"%s","message":"%s"},"request_id":"req_ID"}`, want.kind, why)
		kind, title := "about:blank", http.StatusText(want.status)
		if want.status == 429 {
			kind, title = "https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota exceeded"
		}
		native := fmt.Sprintf(`{"type":"%s","title":"%s","status":%d,"detail":"%s","code":"%s","limit":"tenant","violated-policies":["tenant","key"],"retry_after_ms":1200,"receipt":"RECEIPT"}`,
			kind, title, want.status, why, code)
		for _, c := range []struct {
			dialect           dialect
			body, media, more string // its body, its type, and a line that its header has besides
			event             string
		}{
			{dialect{request: "ID"}, native, "application/problem+json", "", ""},
			{dialect{registry.DialectOpenAI, "ID"}, openAI, "application/json", "", "data: " + openAI + "\n\n"},
			{dialect{registry.DialectAnthropic, "ID"}, anthropic, "application/json", "request-id: req_ID", "event: error\ndata: " + anthropic + "\n\n"},
		} {
			header := []string{
				"agentgate-code: " + string(code), "cache-control: no-store", fmt.Sprintf("content-length: %d", len(c.body)),
				"content-type: " + c.media, "retry-after: 2", "retry-after-ms: 1200",
			}
			if c.more != "" {
				header = append(header, c.more)
			}
			switch want.status {
			case 401:
				header = append(header, `www-authenticate: Bearer realm="agentgate"`)
			case 405:
				header = append(header, "allow: POST")
			case 429:
				if c.dialect.name != "" {
					header = append(header, "x-ratelimit-limit-requests: 40", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 2m3s")
				}
			}
			slices.Sort(header)
			status, got, body := written(t, c.dialect, e)
			if status != want.status || body != c.body || !slices.Equal(got, header) {
				t.Errorf("%s in %q: %d\n%s\n%q\nwant %d\n%s\n%q", code, c.dialect.name, status, body, got, want.status, c.body, header)
			}
			if c.event != "" && string(c.dialect.event(e)) != c.event {
				t.Errorf("%s in %q ends a stream with %q, want %q", code, c.dialect.name, c.dialect.event(e), c.event)
			}
		}
	}
	if len(refusals) != len(Codes()) {
		t.Errorf("what is said of codes that there are not: %v", slices.Sorted(maps.Keys(refusals)))
	}
}

// TestStatusesOfTheirOwn: where a refusal has a status that is not its code's, clients are
// told by that.
func TestStatusesOfTheirOwn(t *testing.T) {
	for status, kind := range map[int]string{404: "not_found_error", 415: "invalid_request_error", 407: "invalid_request_error"} {
		e := refuse(BadRequest, "why")
		e.Status = status
		got, _, body := written(t, dialect{registry.DialectOpenAI, "ID"}, e)
		if want := `{"error":{"message":"why","type":"` + kind + `","param":null,"code":"bad_request"}}`; got != status || body != want {
			t.Errorf("%d: %d %s, want %s", status, got, body, want)
		}
	}
}

// TestWhetherToTryAgain: what official SDKs go by. They wait as told, by retry-after-ms
// first, for up to a minute, and come back when they please if the wait is longer, unless
// x-should-retry says no: so it does where nobody should come back, and is never "true".
func TestWhetherToTryAgain(t *testing.T) {
	for _, c := range []struct {
		e                         Error
		after, ms, retry, resetIn string
	}{
		{Error{Wait: 200 * time.Millisecond}, "1", "200", "", "200ms"},
		{Error{Wait: 200*time.Millisecond + 1}, "1", "201", "", "201ms"},
		{Error{Wait: 5 * time.Second, Full: 1500 * time.Millisecond}, "5", "5000", "", "1.5s"},
		{Error{Wait: time.Minute, Full: 2*time.Minute + 3*time.Second}, "60", "60000", "", "2m3s"},
		{Error{Wait: time.Minute + 1, Full: time.Hour}, "61", "60001", "false", "1h0m0s"},
		{Error{Wait: time.Second, Never: true}, "1", "1000", "false", "1s"},
		{Error{Wait: time.Second, Ran: true}, "1", "1000", "false", "1s"},
	} {
		for _, name := range []string{"", registry.DialectOpenAI, registry.DialectAnthropic} {
			c.e.Code, c.e.Quota = RateLimited, 5
			_, header, _ := written(t, dialect{name, "ID"}, &c.e)
			var got []string
			for _, line := range header {
				if strings.HasPrefix(line, "retry-") || strings.HasPrefix(line, "x-") {
					got = append(got, line)
				}
			}
			want := []string{"retry-after-ms: " + c.ms, "retry-after: " + c.after}
			if name != "" {
				want = append(want, "x-ratelimit-limit-requests: 5", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: "+c.resetIn)
			}
			if c.retry != "" {
				want = append(want, "x-should-retry: "+c.retry)
			}
			if !slices.Equal(got, want) {
				t.Errorf("a wait of %s, never %v, ran %v, in %q: %q, want %q", c.e.Wait, c.e.Never, c.e.Ran, name, got, want)
			}
		}
	}
}
