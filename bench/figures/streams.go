package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"
)

// vanished kills the process of 2,000 clients and measures how long after that
// each of their upstream connections is let go, and whether the gateway then
// holds no slot.
func (b *bench) vanished() error {
	const n = 2000
	var p99 [2]time.Duration
	var released [2]int
	var slots float64
	for i, side := range []contender{
		{b.peer, job{Requests: b.gets("/stream"), Status: 200}},
		{b.always, job{Requests: b.acts("stream"), Status: 200}},
	} {
		if _, err := b.stub.streams(); err != nil {
			return err
		}
		l, err := b.hold(side, n)
		if err != nil {
			return err
		}
		time.Sleep(time.Second)
		killed := time.Now()
		l.stop()
		var after []time.Duration
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			r, err := b.stub.streams()
			if err != nil {
				return err
			}
			for _, t := range r.Ended {
				after = append(after, t.Sub(killed))
			}
			if r.Open == 0 {
				break
			}
		}
		slices.Sort(after)
		p99[i], released[i] = quantile(after, 0.99), len(after)
		if side.Admin != "" {
			if slots, err = inFlight(side.Admin); err != nil {
				return err
			}
		}
	}
	b.table.bound("2,000 vanished clients, upstream let go, p99", "ms", ms(p99[1]), number(ms(p99[0]), "ms"), 150)
	b.table.bound("  of them not released", "", float64(n-released[1]), number(float64(n-released[0]), ""), 0)
	b.table.bound("  slots still held", "", slots, "", 0)
	return nil
}

// inFlight sums the calls in flight that the gateway's metrics tell of, once
// they are none or a second has passed.
func inFlight(admin string) (total float64, err error) {
	for range 20 {
		res, err := http.Get("http://" + admin + "/metrics")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return 0, err
		}
		total = 0
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "agentgate_inflight{"); ok {
				var n float64
				if _, err := fmt.Sscan(rest[strings.Index(rest, "} ")+2:], &n); err != nil {
					return 0, err
				}
				total += n
			}
		}
		if total == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return total, nil
}

// streams is what open streams cost on which nothing but a comment comes now and then,
// and whether they stay open.
func (b *bench) streams() error {
	n := 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	// A proxy holds two files for each stream.
	if most := int(files.Max-200) / 2; n > most {
		n = most
		b.table.note("streams: %d instead of 10,000, for the limit of open files is %d", n, files.Max)
	}
	var each, load, dropped [2]float64
	for i, side := range b.holders() {
		if err := func() error {
			defer side.stop()
			time.Sleep(time.Second)
			before := side.rss()
			l, err := b.hold(side, n)
			if err != nil {
				return err
			}
			defer l.stop()
			time.Sleep(2 * time.Second)
			each[i] = float64(side.rss()-before) / 1024 / float64(n)
			opened, err := b.stub.streams()
			if err != nil {
				return err
			}
			from := side.cpu()
			time.Sleep(b.held)
			load[i] = ms(side.cpu()-from) / b.held.Seconds() / 10
			still, err := b.stub.streams()
			dropped[i] = float64(opened.Open - still.Open)
			return err
		}(); err != nil {
			return err
		}
	}
	what := number(float64(n), "idle streams")
	b.table.bound("memory of each of "+what, "KiB", each[1], number(each[0], "KiB"), 60)
	b.table.bound("processor of "+what+", each with a comment every 15 s", "% of a core", load[1], number(load[0], "%"), 5)
	b.table.bound("  of them dropped in "+b.held.String(), "", dropped[1], number(dropped[0], ""), 0)
	return nil
}

// holders are a fresh peer and a fresh gateway: memory that earlier figures
// left behind would hide what streams take.
func (b *bench) holders() [2]contender {
	peer, err := listening("peer", b.stub.Address)
	fail(err)
	fresh, err := b.gateway(b.binary, "streams")
	fail(err)
	return [2]contender{
		{peer, job{Requests: b.gets("/stream"), Status: 200}},
		{fresh, job{Requests: b.acts("stream"), Status: 200}},
	}
}

func (b *bench) hold(c contender, n int) (*process, error) {
	j := c.job
	j.Address, j.Conns, j.Hold = c.Address, n, true
	l, err := startLoad(j)
	if err != nil {
		return nil, err
	}
	r, err := l.result()
	if err == nil && r.Answers != int64(n) {
		b.table.note("streams: only %d of %d could be opened", r.Answers, n)
	}
	return l, err
}
