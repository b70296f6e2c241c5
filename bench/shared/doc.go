// Package shared measures how fast replicas decide by a store that they share, beside
// other ways to ask the same server: in one run, in turn, on one machine.
//
//	cd bench && go test ./shared -run Table -v -table
//
// A call is what the gateway asks of its limits: a token of its key, of its tenant and of
// its key at the service, and a slot, which it gives back. Each row says what its calls are:
// what takes two buckets stands beside agentgw with three, as the gateway needs them, and
// beside agentgw with two, which is the same work.
package shared
