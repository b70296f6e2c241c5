// Figures measures the gateway as its users meet it: the real binary in a
// process of its own, between a load generator and a stub upstream that are
// processes of their own too, beside a bare and tuned httputil.ReverseProxy
// under the same load. It prints one table.
//
//	make bench                          # from the root of the repository
//	go run ./figures -binary ../agentgw -seconds 1
//
// Contenders run in turn, round after round, and a figure is the median of its
// rounds, so that a busy moment of the machine meets all of them. Processor
// time is what the kernel charged to the contender's process; of all the
// figures it and its ratios are the ones to trust on a machine that does other
// work too. A figure that misses is shown as such and is no error.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			fail(role())
			return
		}
	}
	binary := flag.String("binary", "../agentgw", "the gateway to measure")
	root := flag.String("root", "..", "the gateway's source, for its benchmarks")
	seconds := flag.Float64("seconds", 2, "length of one run; there are about 50, besides what has to be waited for")
	rounds := flag.Int("rounds", 5, "rounds of each comparison")
	only := flag.String("only", "", "one group of figures: idle, cost, added, refusals, neighbour, controls, cuts, vanished, streams or receipts")
	hold := flag.Duration("hold", 20*time.Second, "for how long idle streams are held and looked at; 10m to believe that none is dropped")
	flag.Parse()
	b, err := newBench(*binary, *root, *only, *seconds, *rounds)
	fail(err)
	b.held = *hold
	fail(b.run())
	stopAll()
	_ = os.RemoveAll(b.folder)
	b.table.print(os.Stdout)
}

// roles are what this program does when it starts itself.
var roles = map[string]func() error{"stub": stub, "peer": peer, "load": load, "gateway": partsGateway}

func fail(err error) {
	if err != nil {
		stopAll()
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}
