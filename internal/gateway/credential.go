package gateway

import (
	"errors"
	"fmt"
	"net/http"

	"agentgw/internal/oauth"
	"agentgw/internal/registry"
	"agentgw/internal/vault"
)

// CredentialForm is how a service wants its credential, as the vault knows forms.
func CredentialForm(s *registry.Service) vault.Form {
	c := s.Credential
	f := vault.Form{Type: c.Type, Name: c.Name, PerUser: c.PerUser, Host: vault.Host(s.BaseURL)}
	if o := c.OAuth2; o != nil {
		f.OAuth2 = &vault.OAuth2{
			Client: oauth.Client{
				AuthorizeURL: o.AuthorizeURL, TokenURL: o.TokenURL, ID: o.ClientID, Auth: o.ClientAuth,
				Scopes: o.Scopes, AuthorizeParams: o.AuthorizeParams, TokenParams: o.TokenParams,
			},
			OfItself: o.Flow == registry.FlowClientCredentials, AllowPrivate: o.AllowPrivate,
		}
	}
	return f
}

// openCredential is step 7. A credential per user never falls back to a shared one.
func openCredential(in Vault, call *Call, service *registry.Service) (vault.Credential, *Error) {
	if call.tunnel != nil { // the gateway says nothing in it
		return vault.Credential{}, nil
	}
	ref := vault.Ref{Service: service.Name, User: call.Act.Principal}
	credential, err := in.Open(call.In.Context(), ref, CredentialForm(service))
	if err == nil {
		return credential, nil
	}
	e := refuse(CredentialMissing, "%s", howToSet(call, service))
	switch {
	case errors.Is(err, vault.ErrReconnect):
		e.Message = fmt.Sprintf("the account at %s has to be connected again; the operator makes a link for that with: agentgw credentials link --service %s", service.Name, service.Name)
		if service.Credential.PerUser {
			e.Message += " --user USER"
		}
	case errors.Is(err, vault.ErrRenewal):
		e = refuse(CredentialRefresh, "the access to %s could not be renewed; nothing was sent to it, call again later", service.Name)
	case call.In.Context().Err() != nil:
		return vault.Credential{}, &Error{Code: Internal, Message: "the caller hung up", Err: http.ErrAbortHandler}
	}
	e.Err = err
	return vault.Credential{}, e
}

// howToSet tells who is refused for want of a credential what is missing.
func howToSet(call *Call, service *registry.Service) string {
	c := service.Credential
	command := "one is set with: agentgw credentials set --service " + service.Name
	if c.OAuth2 != nil && c.OAuth2.Flow == registry.FlowAuthorizationCode {
		command = "an account is connected by a link from: agentgw credentials link --service " + service.Name
	}
	switch {
	case !c.PerUser:
		return fmt.Sprintf("there is no usable credential for %s; the operator's log says why; %s", service.Name, command)
	case call.Act.Principal == "":
		return fmt.Sprintf("%s uses each user's own credential; say for whom in on_behalf_of", service.Name)
	}
	return fmt.Sprintf("%s uses each user's own credential, and there is none for this on_behalf_of; %s --user USER", service.Name, command)
}
