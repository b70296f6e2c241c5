package main

import "time"

// idle is what a gateway costs that nobody calls.
func (b *bench) idle() error {
	time.Sleep(2 * time.Second) // its start, and its first look for changed keys
	from, peer := b.always.cpu(), b.peer.cpu()
	time.Sleep(10 * time.Second)
	b.table.bound("idle gateway, processor", "ms/s", ms(b.always.cpu()-from)/10, number(ms(b.peer.cpu()-peer)/10, "ms/s"), 1)
	return nil
}

// cost is the processor time of a call, and how many calls a second there are.
func (b *bench) cost() error {
	for _, conns := range []int{64, 256} {
		posts := job{Conns: conns, Requests: b.posts("/small"), Status: 200, Length: 1 << 10}
		acts := job{Conns: conns, Requests: b.acts("small"), Status: 200, Length: 1 << 10}
		contenders := []contender{{b.peer, posts}, {b.always, acts}, {b.interval, acts}}
		if b.nginx != nil {
			contenders = append(contenders, contender{b.nginx, posts})
		}
		var cpu, rate [4][]float64
		err := b.turns(b.seconds, func(i int, r result, took time.Duration) {
			cpu[i] = append(cpu[i], ms(took)/float64(r.Answers)*1000)
			rate[i] = append(rate[i], float64(r.Answers)/r.Seconds)
		}, contenders...)
		if err != nil {
			return err
		}
		what := number(float64(conns), "connections")
		b.table.compare("processor for 1,000 calls, "+what, "ms", cpu[1], cpu[0], ratios(cpu[1], cpu[0]), 1.25)
		b.table.compare("  the same, receipts interval", "ms", cpu[2], cpu[0], ratios(cpu[2], cpu[0]), 1.25)
		if b.nginx != nil {
			b.table.beside("  the same, beside nginx with such controls", "ms", cpu[1], cpu[3], ratios(cpu[1], cpu[3]))
		}
		if conns == 64 {
			b.table.least("durable calls, "+what, "calls/s", median(rate[1]), number(median(rate[0]), "calls/s"), 12_000)
		} else {
			b.table.report("durable calls, "+what, "calls/s", median(rate[1]), number(median(rate[0]), "calls/s"))
		}
	}
	return nil
}

// added is the time that one hop adds to a call while there is no other.
func (b *bench) added() error {
	var p50 [3][]float64
	err := b.turns(b.seconds/2, func(i int, r result, _ time.Duration) {
		p50[i] = append(p50[i], float64(r.P50.Nanoseconds())/1000)
	},
		contender{b.stub, job{Conns: 1, Requests: b.posts("/small"), Status: 200, Length: 1 << 10}},
		contender{b.peer, job{Conns: 1, Requests: b.posts("/small"), Status: 200, Length: 1 << 10}},
		contender{b.interval, job{Conns: 1, Requests: b.acts("small"), Status: 200, Length: 1 << 10}})
	if err != nil {
		return err
	}
	peer, gateway := less(p50[1], p50[0]), less(p50[2], p50[0])
	b.table.compare("added p50, 1 connection, receipts interval", "µs", gateway, peer, ratios(gateway, peer), 1.2)
	return nil
}

// refusals are compared with the cheapest answer that a proxy can relay: no
// body on either way.
func (b *bench) refusals() error {
	if _, _, err := b.always.under(job{Conns: 1, Total: 1, Requests: b.acts("small", dryKey), Status: 200, Length: 1 << 10}); err != nil {
		return err // its one call of the hour
	}
	var cpu [3][]float64
	err := b.turns(b.seconds/2, func(i int, r result, took time.Duration) {
		cpu[i] = append(cpu[i], ms(took)/float64(r.Answers)*1000)
	},
		contender{b.peer, job{Conns: 64, Requests: b.gets("/empty"), Status: 204}},
		contender{b.always, job{Conns: 64, Requests: b.acts("small", wrongKey), Status: 401, Length: -1}},
		contender{b.always, job{Conns: 64, Requests: b.acts("small", dryKey), Status: 429, Length: -1}})
	if err != nil {
		return err
	}
	b.table.compare("processor for 1,000 refusals, 401", "ms", cpu[1], cpu[0], ratios(cpu[1], cpu[0]), 1.2)
	b.table.compare("processor for 1,000 refusals, 429", "ms", cpu[2], cpu[0], ratios(cpu[2], cpu[0]), 1.2)
	return nil
}

// cuts counts the answers that end before their end (golang.org/issue/40747).
func (b *bench) cuts() error {
	scale := min(1, b.seconds/2)
	for _, c := range []struct {
		name, action string
		total        int64
		length       int64
	}{
		{"POST streams", "events", int64(10_000 * scale), events * 16},
		{"POST answers of 64 KiB", "large", int64(100_000 * scale), 64 << 10},
	} {
		var cut [2]int64
		for i, side := range []contender{
			{b.peer, job{Conns: 64, Total: c.total, Requests: b.posts("/" + c.action), Status: 200, Length: c.length}},
			{b.always, job{Conns: 64, Total: c.total, Requests: b.acts(c.action), Status: 200, Length: c.length}},
		} {
			r, _, err := side.under(side.job)
			if err != nil {
				return err
			}
			cut[i] = r.Cut
		}
		b.table.bound("cut of "+number(float64(c.total), c.name), "", float64(cut[1]), number(float64(cut[0]), ""), 0)
	}
	return nil
}
