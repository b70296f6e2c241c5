// Package oidc tells who is calling by a token of an OpenID Connect issuer that
// the registry names.
//
// # What a token has to be
//
// One JSON Web Token in compact form (RFC 7519), of at most 16 KiB, signed with
// an asymmetric algorithm by a key that the issuer publishes. Each of these is
// checked, and what cannot be read in one way only is refused:
//
//   - three parts of canonical base64url, no padding, no white space;
//   - the header: no member twice, alg one of RS, PS and ES with 256, 384 and 512, or
//     EdDSA; typ absent, JWT or at+jwt, so that neither a delegation nor a logout token
//     passes for a caller; no crit, b64, jku, jwk, x5u, x5c, and nothing encrypted (JWE);
//   - the key: of the header's kid, where it has one; published for signatures (use,
//     key_ops) with that algorithm (alg), RSA of at least 2,048 bits;
//   - iss: byte for byte the issuer of the registry; aud: its audience, and no other beside
//     it, as a token for two is one that the other could present here; azp, or else
//     client_id, one of the entry's list where it has one;
//   - exp, which must be there, nbf and iat: of now, give or take [Leeway];
//   - sub; and no cnf, since a token bound to a key (RFC 9449, RFC 8705) proves nothing
//     without a proof, nor events (RFC 8417).
//
// # Keys of an issuer
//
// Discovery says where they are; that is kept, and asked again only when the keys
// could not be had there. They are fetched again when a token names a key that is
// not among them, and when they are five minutes old; but never twice in 30 s,
// whatever strangers send. While the issuer cannot be reached the last ones are
// good for 24 h. A caller with a known key never waits for a fetch.
//
// # What is not promised
//
// A token that its issuer revokes is good until it expires: nobody is asked
// (introspection, RFC 7662, is not built). Whoever holds a token is its caller.
package oidc
