package identity_test

import (
	"testing"

	"agentgw/internal/identity"
)

// TestAnOpenCallerMayCallOneService, whatever whom an issuer vouches for might call else.
func TestAnOpenCallerMayCallOneService(t *testing.T) {
	k := identity.NewOpenCaller(identity.Key{ID: "oidc:1", Issuer: "https://i.example", Services: []string{"*"}, Actions: []string{"*.*"}}, "llm").Key
	if !k.AllowsService("llm") || !k.Allows("llm", "get") || !k.AllowsEvery("llm") || k.AllowsService("other") || k.AllServices() {
		t.Errorf("%+v", k)
	}
	if k.ID != "oidc:1" || k.Open != "llm" || k.Tenant != "" {
		t.Errorf("%+v", k)
	}
}
