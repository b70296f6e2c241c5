module agentgw/bench

go 1.26.0

require (
	agentgw v0.0.0-00010101000000-000000000000
	github.com/hashicorp/golang-lru/v2 v2.0.7
	golang.org/x/sys v0.49.0
	golang.org/x/time v0.16.0
)

require github.com/jonboulle/clockwork v0.5.0 // indirect

replace agentgw => ..
