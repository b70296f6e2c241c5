// Package rules says what a call means to the rules of a registry: which of them
// apply to it, for which partition key, what it counts for and under which
// maximum. It counts nothing itself.
//
// A rule's expressions are of the Common Expression Language (cel.dev). They are
// compiled and checked when a registry is loaded, so that a mistake in one keeps the
// registry from coming into force, and never again: Compile makes an immutable Set.
//
// # What expressions see
//
//	caller, tenant             string: key:ci-bot, tenant:acme
//	service, action            string
//	client_ip                  string: 203.0.113.7; of IPv6 the /64, 2001:db8:0:1::/64
//	org, space, user           string, or null where the key has none
//	principal                  string, or null where the call names nobody
//	principal_or_ip            string: human:alice, or client_ip
//	request.id, request.method, request.path    string; the path as declared: /repos/{owner}
//	request.bytes              int: of the body as it came
//	request.params             map: the parameters as they came, not yet held to their schema
//
// A number among the parameters is an int if it is written as one and fits, or is
// whole and no double holds it, else a double.
//
// # When an expression has no result
//
// What a stranger sends may have an expression fail: a parameter that is not there,
// or of another type, or so long that the work is too much. That neither opens nor
// closes a limit. Without a key the call shares a partition of the rule with all
// others that have none; without a when the rule applies; without a count it counts
// for 1. Without a maximum alone it is refused. What failed is in Charge.Faults, in
// words that hold nothing of what the stranger sent.
//
// # Conditions of scopes
//
// A scope of an issuer may be given by an expression, too. It sees one variable,
// claims, a map of what the token says; numbers there are doubles. Where it has no
// result nobody knows whether the scope was meant: see Conditions.Holds.
//
// # Bounds
//
// An expression has at most 4,096 characters. What it may cost is estimated when it
// is compiled, and measured when it runs if it looks at the parameters, which have
// no bound of their own. What a pattern costs is known before it is matched.
package rules
