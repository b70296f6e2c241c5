package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bench is one run of all figures.
type bench struct {
	binary, root string
	only         string
	seconds      float64
	rounds       int
	held         time.Duration // of idle streams
	table        table

	*world
	stub, peer       *process
	always, interval *process // gateways with either kind of receipts
	nginx            *process // nil: not installed
}

func newBench(binary, root, only string, seconds float64, rounds int) (b *bench, err error) {
	b = &bench{root: root, only: only, seconds: seconds, rounds: rounds}
	if b.binary, err = filepath.Abs(binary); err != nil {
		return nil, err
	}
	if b.stub, err = listening("stub"); err != nil {
		return nil, err
	}
	if b.peer, err = listening("peer", b.stub.Address); err != nil {
		return nil, err
	}
	if b.world, err = newWorld(b.stub.Address); err != nil {
		return nil, err
	}
	if only == "receipts" { // which starts its own, and needs no built binary
		return b, nil
	}
	if b.always, err = b.gateway(b.binary, "always"); err != nil {
		return nil, err
	}
	if b.interval, err = b.gateway(b.binary, "interval", "--receipt-sync", "interval"); err != nil {
		return nil, err
	}
	b.nginx, err = b.world.nginx(b.stub.Address)
	return b, err
}

func (b *bench) run() error {
	b.others()
	for _, figure := range []struct {
		name    string
		measure func() error
	}{
		{"idle", b.idle}, {"cost", b.cost}, {"added", b.added}, {"refusals", b.refusals}, {"neighbour", b.neighbour}, {"controls", b.controls},
		{"cuts", b.cuts}, {"vanished", b.vanished}, {"streams", b.streams},
		{"receipts", b.receipts},
	} {
		if b.only != "" && b.only != figure.name {
			continue
		}
		if err := figure.measure(); err != nil {
			return err
		}
	}
	return nil
}

// others says which of the other proxies are not here. Of those that may be,
// only nginx is driven.
func (b *bench) others() {
	var absent []string
	for _, name := range []string{"nginx", "haproxy", "caddy", "traefik"} {
		if _, err := exec.LookPath(name); err != nil {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		b.table.note("not installed and so not compared: %s", strings.Join(absent, ", "))
	}
	if missing != "" {
		b.table.note("%s", missing)
	}
}

// contender is one side of a comparison.
type contender struct {
	*process
	job job
}

// turns runs the contenders in turn, after a short run of each that does not
// count, and gives their results round by round.
func (b *bench) turns(seconds float64, each func(i int, r result, cpu time.Duration), contenders ...contender) error {
	for round := -1; round < b.rounds; round++ {
		for i, c := range contenders {
			j := c.job
			j.Seconds = seconds
			if round < 0 {
				j.Seconds = min(seconds, 1)
			}
			r, cpu, err := c.under(j)
			if err != nil {
				return err
			}
			if round >= 0 {
				each(i, r, cpu)
			}
		}
	}
	return nil
}
