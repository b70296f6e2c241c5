package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExplainOfARunningGateway: the API gives the command's answer, with the
// levels of the gateway that runs, and follows a reload.
func TestExplainOfARunningGateway(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 3}")
	r.admitted(2)
	r.call("hold")
	ask := func() string {
		t.Helper()
		status, body := r.operate("GET", "/admin/v1/limits/explain?key=k&service=tools&action=get&user=ann", operators)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		return strings.ReplaceAll(body, r.file, "registry.yaml")
	}
	want := `{"key":"k","key_source":"registry.yaml:6:5","service":"tools","action":"get","user":"ann","tenant":"tenant:t",` +
		`"limits_are":"per process: N replicas admit up to N times as much","refused":null,"limits":[` +
		`{"step":2,"limit":"key","policy":"key","charged_to":"key:k","off":false,"rps":1000,"burst":1000,"source":"flag --rate-key-rps","burst_source":"flag --rate-key-burst","level":{"remaining":LEFT}},` +
		`{"step":5,"limit":"tenant","policy":"tenant","charged_to":"tenant:t","off":false,"rps":0.01,"burst":10,"source":"registry.yaml:3:7","burst_source":"registry.yaml:3:18","level":{"remaining":7}},` +
		`{"step":5,"limit":"service","policy":"service","charged_to":"key:k at tools","off":true,"source":"registry.yaml:8:3"},` +
		`{"step":5,"limit":"tenant","policy":"inflight","charged_to":"tenant:t","off":false,"max_inflight":3,"source":"registry.yaml:3:29","level":{"remaining":2,"in_flight":1}},` +
		`{"step":5,"limit":"service","policy":"service-inflight","charged_to":"service:tools","off":true,"source":"registry.yaml:8:3","level":{"in_flight":1}},` +
		`{"step":5,"limit":"process","policy":"process-inflight","charged_to":"the process","off":true,"source":"default AGENTGATE_MAX_INFLIGHT","level":{"in_flight":1}},` +
		`{"step":5,"limit":"tenant","policy":"queue","charged_to":"tenant:t","off":true,"source":"default AGENTGATE_TENANT_QUEUE","level":{"queued":0}}],"rules":[]}` + "\n"
	var told struct {
		Limits []struct{ Level struct{ Remaining int } }
	}
	got := ask()
	if err := json.Unmarshal([]byte(got), &told); err != nil {
		t.Fatal(err)
	}
	if left := told.Limits[0].Level.Remaining; left < 997 || left > 1000 { // it refills by the millisecond
		t.Errorf("the key has %d left", left)
	}
	if diff := cmp.Diff(strings.Replace(want, "LEFT", fmt.Sprint(told.Limits[0].Level.Remaining), 1), got); diff != "" {
		t.Error(diff)
	}
	r.reload("{rps: 0.01, burst: 4, max_inflight: 1}")
	if got := ask(); !strings.Contains(got, `"burst":4,"source":"registry.yaml:3:7","burst_source":"registry.yaml:3:18","level":{"remaining":4}`) ||
		!strings.Contains(got, `"max_inflight":1,"source":"registry.yaml:3:28","level":{"remaining":0,"in_flight":1}`) {
		t.Errorf("after a reload: %s", got)
	}
}

// TestExplainNamesWhatIsWrongWithTheQuestion, each parameter of it, and answers
// nobody without a token.
func TestExplainNamesWhatIsWrongWithTheQuestion(t *testing.T) {
	r := newReloading(t, "{}")
	const detail = `"say which call: ?key=ID\u0026service=S\u0026action=A, and \u0026user=U if it is on somebody's behalf, \u0026client_ip=A if a rule looks at it, \u0026claims={} of who comes with a token"`
	for query, want := range map[string]string{
		"": `{"type":"about:blank","title":"Bad Request","status":400,"detail":` + detail + `,"code":"bad_request",` +
			`"parameters":[{"name":"key","what":"is missing"},{"name":"service","what":"is missing"},{"name":"action","what":"is missing"}]}`,
		"key=k&key=j&service=&action=get&actoin=x": `{"type":"about:blank","title":"Bad Request","status":400,"detail":` + detail + `,"code":"bad_request",` +
			`"parameters":[{"name":"key","what":"is given more than once"},{"name":"service","what":"is empty"},{"name":"actoin","what":"is not a parameter of this"}]}`,
		"key=k&service=tools&action=get&client_ip=here": `{"type":"about:blank","title":"Bad Request","status":400,"detail":` + detail + `,"code":"bad_request",` +
			`"parameters":[{"name":"client_ip","what":"is not an IP address"}]}`,
		"key=k&service=tools&action=get&claims={}": `{"type":"about:blank","title":"Bad Request","status":400,"detail":` + detail + `,"code":"bad_request",` +
			`"parameters":[{"name":"claims","what":"is for a key=oidc:ISSUER#SUBJECT, and says nothing of a key"}]}`,
		"key=oidc:https://idp.example%23a&service=tools&action=get": `{"type":"about:blank","title":"Not Found","status":404,"detail":"is not oidc:ISSUER#SUBJECT of an issuer that registry.yaml has, as it is spelled there","code":"not_found",` +
			`"parameters":[{"name":"key","what":"is not the id of a key"}]}`,
		"key=k;service=tools&action=get": `{"type":"about:blank","title":"Bad Request","status":400,"detail":` + detail + `,"code":"bad_request",` +
			`"parameters":[{"name":"","what":"the query cannot be read"}]}`,
		"key=j&service=tools&action=get": `{"type":"about:blank","title":"Not Found","status":404,"detail":"there is no key \"j\", neither in registry.yaml nor in the state store","code":"not_found",` +
			`"parameters":[{"name":"key","what":"is not the id of a key"}]}`,
	} {
		_, body := r.operate("GET", "/admin/v1/limits/explain?"+query, operators)
		if diff := cmp.Diff(want+"\n", strings.ReplaceAll(body, r.file, "registry.yaml")); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
	}
	_, body := r.operate("GET", "/admin/v1/limits/explain?key="+r.key+"&service=tools&action=get", operators)
	if !strings.Contains(body, `"status":404`) || strings.Contains(body, "agw_") {
		t.Errorf("of the key itself: %s", body)
	}
	if status, body := r.operate("GET", "/admin/v1/limits/explain?key=k&service=tools&action=get", ""); status != http.StatusUnauthorized || strings.Contains(body, "limits") {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, _ := r.operate("POST", "/admin/v1/limits/explain?key=k&service=tools&action=get", operators); status != http.StatusNotFound {
		t.Errorf("a POST: %d", status)
	}
}
