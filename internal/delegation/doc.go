// Package delegation verifies, issues and narrows delegations: grants that a human
// gives to an agent, and the agent, if it may, to another, each as a signed token.
//
// A delegation is a chain of JWTs (RFC 7519) in the compact serialisation of JWS (RFC
// 7515), root first, separated by commas: at most four links and 8 KiB. The root is
// signed by the gateway:
//
//	{"typ":"agent-delegation+jwt","alg":"EdDSA","kid":"root-5f0c…"}
//	{"iss":"https://gw.example","aud":"https://gw.example",
//	 "sub":"user:alice","tenant":"acme",
//	 "act":{"sub":"agent:planner"},
//	 "cnf":{"jkt":"<RFC 7638 thumbprint of the key that may sign the next link>"},
//	 "authorization_details":[{"type":"agent_action","service":"github",
//	   "actions":["create_issue"],"constraints":{"owner":{"const":"acme"}}}],
//	 "del_depth":1,"iat":1767225600,"nbf":1767225600,"exp":1767229200,"jti":"01KE…"}
//
// Every further link is signed by the holder of the key that the one before it names,
// carries that key in its header ("jwk") instead of a "kid", and has the SHA-256 of the
// link before it in "par". It has the same issuer, audience, user and tenant, and grants
// the same or less. Only tenant, cnf, constraints and par may be left out; there are no
// other members, so that nothing that a later version restricts is overlooked by this one.
//
// There is one spelling of a token: what RFC 7515 lets a reader pass over, such as
// padding or bits that no byte needs, is refused. A token is named by its "jti" and by
// the SHA-256 of its text.
//
// A chain is of no use to whoever finds it: it is good for the agent alone that its
// last link names, and who calls, the gateway knows from elsewhere.
//
// The package is arithmetic on bytes: it reads no clock, file or store.
package delegation
