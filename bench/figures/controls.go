package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

var controlsLine = regexp.MustCompile(`(?m)^BenchmarkControls/keys=(\d+)\S*\s.*?([\d.]+) cpu-ns/op\s+\d+ B/op\s+(\d+) allocs/op`)

// controls runs the gateway's own benchmark of what it does for a call besides
// relaying it.
func (b *bench) controls() error {
	cmd := exec.Command("go", "test", "-tags", "nomsgpack", "-run", "^$", "-bench", "^BenchmarkControls$", "-benchmem",
		"-benchtime", fmt.Sprintf("%.1fs", b.seconds/3), "./internal/gateway")
	cmd.Dir, cmd.Stderr = b.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	lines := controlsLine.FindAllStringSubmatch(string(out), -1)
	if len(lines) == 0 {
		return fmt.Errorf("no figures in\n%s", out)
	}
	for _, l := range lines {
		took, err := strconv.ParseFloat(l[2], 64)
		if err != nil {
			return err
		}
		allocations, err := strconv.ParseFloat(l[3], 64)
		if err != nil {
			return err
		}
		b.table.bound("controls alone, "+l[1]+" keys", "µs", took/1000, "", 4)
		b.table.bound("  allocations", "", allocations, "", 4)
	}
	return nil
}
