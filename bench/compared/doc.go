// Package compared asks other limiters what AgentGate's own is asked: small
// checks, each of one property, that run against an adapter of each. What they
// answer is the page docs/limiters-compared.md, which a test keeps in step.
//
//	cd bench && go test ./compared          # is the page in step?
//	cd bench && go test ./compared -write   # write it anew
//
// A peer is used as its documentation recommends, at the version in go.mod, in
// time that the check sets wherever the library lets it be set. What it does not
// offer it is not asked. A failure is told as the shortest history that shows it,
// so that a reader can work it out by hand.
package compared
