// Package bench measures AgentGate against other ways to do the same work. It
// is a module of its own, so that what it compares with is no dependency of the
// product. `make bench` runs all of it.
//
//	cd bench && go run ./figures               # the whole gateway, in processes
//	cd bench && go test -run Table -v -table   # the limiter, in one process: LIMITER.md
//	cd bench && go test ./shared -run Table -v -table   # limits shared in Redis
//	cd bench && go test -bench .
//	cd bench && go test ./compared             # what other limiters promise
package bench
