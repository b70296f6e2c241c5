package gateway

import (
	"net/http"
	"testing"
)

// TestWhatAnAgentMaySendOn: which of an agent's fields go on to a service by /proxy, each
// of those that do not by its name; and its own credentials, to a service that is open.
func TestWhatAnAgentMaySendOn(t *testing.T) {
	const stays, credential, goes = "stays", "goes to an open service", "goes on"
	for want, names := range map[string][]string{
		stays: {"Cookie", "Cookie2", "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Remote-User", "Remote-User",
			"Host", "X-Host", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "Content-Length", "Expect", "X-Request-Id",
			"Agentgate-Key", "Agentgate-On-Behalf-Of", "X-Forwarded-For", "X-Forwarded-Anything", "Proxy-Authorization", "Proxy-Anything", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Named"},
		credential: {"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "X-Access-Token", "Private-Token"},
		goes:       {"Accept", "Content-Type", "Idempotency-Key", "Openai-Organization", "Anthropic-Version", "X-Stainless-Lang", "User-Agent", "Traceparent", "Last-Event-Id"},
	} {
		for _, name := range names {
			in := http.Header{name: {"value"}}
			if name == "X-Named" {
				in["Connection"] = []string{"close, x-named"}
			}
			for _, open := range []bool{false, true} {
				passes := want == goes || open && want == credential
				if got := agentHeader(in, open)[name]; (got != nil) != passes {
					t.Errorf("%s, to a service that is open (%v): %q; it %s", name, open, got, want)
				}
			}
		}
	}
}
