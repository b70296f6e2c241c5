package gateway_test

import (
	"cmp"
	"net/http"
	"testing"

	"agentgw/internal/config"
)

// openRegistry has an open service in each dialect, and one that wants a key.
const openRegistry = `
version: 1
services:
  llm: {base_url: "%[1]s/up", allow_private: true, access: open, passthrough: true, actions: {get: {method: GET, path: "/get/{id}", params: {id: string}}}}
  claude: {base_url: "%[1]s/up", allow_private: true, access: open, passthrough: true, dialect: anthropic}
  plain: {base_url: "%[1]s/up", allow_private: true, access: open, dialect: native, actions: {get: {method: GET, path: "/get/{id}", params: {id: string}}}}
  keyed: {base_url: "%[1]s/up", allow_private: true, passthrough: true, dialect: openai}
`

// callersHave is a setup whose callers of open services have that many calls a minute
// and at once; 0 of the latter is a minute's.
func callersHave(rpm float64, burst int) setup {
	return setup{registry: openRegistry, settings: func(s *config.Settings) {
		s.RateCallerRPM, s.RateCallerBurst = rpm, cmp.Or(burst, int(rpm))
	}}
}

// opened is a request for what stands below /proxy, by who has no key, with these
// header fields, each a name and a value.
func (w *world) opened(target string, header ...string) told {
	w.t.Helper()
	return w.relayedBy("", "GET", target, "", header...)
}

// TestAnOpenServiceWantsNoKey: its callers' own credentials go on to it as they came.
func TestAnOpenServiceWantsNoKey(t *testing.T) {
	var got http.Header
	w := setup{registry: openRegistry}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		hello(rw, r)
	}, everything("k"))
	w.opened("llm/models", "Authorization", "Bearer sk-mine", "X-Api-Key", "another", "Agentgate-Key", "what").want(t, "a stranger", 200, "", "")
	if got.Get("Authorization") != "Bearer sk-mine" || got.Get("X-Api-Key") != "another" || got.Get("Agentgate-Key") != "" {
		t.Error(got)
	}
	w.opened("keyed/models", "Authorization", "Bearer sk-mine").want(t, "a service that wants a key", 401, "unauthenticated", "")
	w.relayedBy("k", "GET", "llm/models", "", "X-Api-Key", "mine").want(t, "a key", 200, "", "")
	if got.Get("Authorization") != "" || got.Get("X-Api-Key") != "mine" {
		t.Error(got)
	}
}
