// Command agentgw is AgentGate: a gateway with concurrency control that stands
// between AI agents and the tool services that they call.
//
// See `agentgw --help`, README.md and ARCHITECTURE.md.
package main

import "os"

func main() {
	c := &cli{
		stdin:   os.Stdin,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		environ: os.Environ(),
	}
	os.Exit(c.run(os.Args[1:]))
}
