package registry_test

import (
	"testing"

	"agentgw/internal/registry"
)

func TestSmoke(t *testing.T) {
	s, err := registry.Parse("r.yaml", []byte(`
version: 1
server: {rate_key_rps: 20}
tenants:
  acme: {rps: 200, burst: 400, max_inflight: 64, weight: 2}
keys:
  - id: ci-bot
    sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    services: [github]
    actions: ["github.list_*"]
    users: [user-42]
    tenant: acme
    limits: {rps: 5, burst: 10}
    user: u-7
issuers:
  - {issuer: https://idp.example, audience: agentgate, tenant_claim: org_id, user_claim: sub}
services:
  github:
    base_url: https://api.github.com
    access: key
    dialect: native
    rate_limit: {rps: 5, burst: 10}
    max_inflight: 8
    timeout: 30s
    delegation: optional
    credential: {type: bearer, scope: user}
    allow_private: true
    passthrough: false
    actions:
      list_issues:
        method: GET
        path: /repos/{owner}/{repo}/issues
        params:
          owner: string
          repo: string
          state: {type: string, enum: [open, closed, all]}
          labels: "string?"
      create_issue: {method: POST, path: "/repos/{owner}/{repo}/issues", params: {owner: string, repo: string, title: string}}
  llm:
    base_url: http://127.0.0.1:9200/v1
    access: open
    passthrough: true
    websocket: {charge: [response.create]}
tunnels:
  allow: ["api.example.com:443", "*.example.org:443"]
  bytes_per_window: 104857600
  window: 1h
rules: []
identity_limits: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	a := s.Services["github"].Actions["list_issues"]
	x, err := a.Target([]byte(`{"owner":"a/b","repo":"é x","state":"open"}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(x.URL.String(), x.URL.Path)
	a = s.Services["github"].Actions["create_issue"]
	x, err = a.Target([]byte(`{"owner":"a","repo":"é","title":"\u00e9 {repo}"}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(x.URL.String(), string(x.Body), x.Header)
}
