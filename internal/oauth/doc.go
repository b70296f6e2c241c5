// Package oauth is the client's side of OAuth 2.0 as far as the vault needs it:
// the address that a person is sent to (RFC 6749 section 4.1.1, with PKCE S256 of
// RFC 7636), and the three requests that yield tokens: for a code, for a refresh
// token, and for the client itself.
//
// Each function that asks a token endpoint sends exactly one request, over the
// transport that it is given, and follows no redirect. An endpoint's answer is read
// to 1 MiB at most. What an endpoint says in words reaches no error: it may repeat
// a secret.
//
// golang.org/x/oauth2 is not used for this. With its default it tries a second way of
// authenticating the client when the first one fails, which spends a code or a
// rotated refresh token twice; its errors print the body of the answer; it reads the
// wall clock; and its TokenSource keeps a token to itself, while here it has to be
// stored before anybody may use it.
package oauth
