package gateway

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"agentgw/internal/identity"
)

// agentHeader is what of an agent's own header a relayed request has: all but what
// speaks of this connection, or is named in Connection (RFC 9110, section 7.6.1), what
// stays here, and any value with a gateway key in it, wherever an agent has put that.
// To a service that is open the agent's own credentials go as well.
func agentHeader(in http.Header, open bool) http.Header {
	h := make(http.Header, len(in)+4)
	connection := in["Connection"]
	for name, values := range in {
		if !hopByHop(name) && !stays(name) && (open || !isCredential(name)) && !anyKey(values) && (connection == nil || !httpguts.HeaderValuesContainsToken(connection, name)) {
			h[name] = values
		}
	}
	return h
}

func anyKey(values []string) bool {
	for _, v := range values {
		if identity.Carries(v) {
			return true
		}
	}
	return false
}

// credentials are the fields in which clients send what they are known by. A service
// gets its own there, which the gateway has; and if it is open what the agent has.
var credentials = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "X-Access-Token", "Private-Token"}

func isCredential(name string) bool { return slices.Contains(credentials, name) }

// stays reports whether a field is one of those that no agent may send on: cookies, which
// a browser sends without being asked, whoever's page it shows; who calls, from where and
// for which host, path and method, which a service might believe before what it is told
// by the request itself; and what is said anew for each connection.
func stays(name string) bool {
	switch name {
	case "Cookie", "Cookie2",
		"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Remote-User", "Remote-User",
		"Host", "X-Host", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url",
		"X-Http-Method", "X-Http-Method-Override", "X-Method-Override",
		"Content-Length", "Expect", "X-Request-Id":
		return true
	}
	return strings.HasPrefix(name, "Agentgate-") || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Proxy-")
}
