// Package bench measures parts of AgentGate against other ways to do the same
// work, in one process and on the same traffic. It is a module of its own, so
// that what it compares with is no dependency of the product.
//
//	cd bench && go test -run Table -v -table
//	cd bench && go test -bench .
package bench
