package compared

import "time"

func checkCostBurst(p peer) result {
	s := p.make(every(hour, 10))
	if a := s.takeN("k", 10); !a.admitted {
		return failed("burst 10: a first call of cost 10 is refused%s", ending(a.err))
	}
	if s.take("k").admitted {
		return failed("burst 10: another call is admitted after one of cost 10")
	}
	return ok()
}

func checkCostNever(p peer) result {
	s := p.make(every(hour, 10))
	a := s.takeN("k", 11)
	if a.admitted {
		return failed("burst 10: a call of cost 11 is admitted")
	}
	if wait, never := a.wait(); !never {
		s.set(wait)
		again, _ := s.takeN("k", 11).wait()
		return failed("1 an hour, burst 10: a call of cost 11 is told to wait %v, and then %v again", wait, again)
	}
	return ok()
}

// checkCostHuge: 5,124,096 hours are 18,446,745,600,000,000,000 ns; modulo 2^64
// that is 1526 s.
func checkCostHuge(p peer) result {
	const cost = 5_124_096
	if a := tried(func() answer { return p.make(every(hour, 10)).takeN("k", cost) }); a.admitted {
		return failed("1 an hour, burst 10: a call of cost 5,124,096 is admitted: its nanoseconds modulo 2^64 are 25 min")
	}
	return ok()
}

func checkCostLess(p peer) result {
	s := p.make(every(hour, 10))
	s.admittedOf(10)
	tried(func() answer { return s.takeN("k", -5) })
	if n, _ := s.admittedOf(20); n > 0 {
		return failed("1 an hour, burst 10: drained, a call of cost -5, and %d more are admitted", n)
	}
	return ok()
}

func checkCostZero(p peer) result {
	s := p.make(every(hour, 10))
	s.admittedOf(3)
	for range 100 {
		s.takeN("k", 0)
	}
	if n, _ := s.admittedOf(20); n != 7 {
		return failed("burst 10: 3 taken, 100 calls of cost 0, and %d more are admitted, of 7", n)
	}
	return ok()
}

func checkRefundSame(p peer) result {
	s := p.make(every(hour, 10))
	first := s.reserve("k")
	s.admittedOf(9)
	first()
	if n, _ := s.admittedOf(5); n != 1 {
		return failed("1 an hour, burst 10: 10 taken at 0 and the first given back at 0: %d more are admitted, of 1", n)
	}
	return ok()
}

func checkRefundLater(p peer) result {
	s := p.make(every(time.Second, 1))
	giveBack := s.reserve("k")
	s.set(time.Microsecond)
	giveBack()
	s.set(ms)
	if a := s.take("k"); !a.admitted {
		return failed("1 a second, burst 1: taken at 0 and given back 1 µs later; a call at 1 ms is refused%s", a.told())
	}
	return ok()
}

func checkRefundTwice(p peer) result {
	s := p.make(every(hour, 10))
	first := s.reserve("k")
	s.admittedOf(9)
	first()
	first()
	if n, _ := s.admittedOf(5); n != 1 {
		return failed("1 an hour, burst 10: 10 taken at 0 and the first given back twice at 0: %d more are admitted, of 1", n)
	}
	return ok()
}

func checkRefundChanged(p peer) result {
	for _, to := range []quota{every(3*hour, 10), every(hour, 20)} {
		s := p.make(every(hour, 10))
		s.admittedOf(9)
		last := s.reserve("k")
		s.change(to)
		s.take("k") // refused, and goes by the new rate
		last()
		if n, _ := s.admittedOf(5); n != 1 {
			return failed("1 an hour, burst 10: 10 taken at 0, then 1 in %v, burst %d, and the last is given back at 0: %d more are admitted, of 1", to.period, to.burst, n)
		}
	}
	return ok()
}

func checkRefundRefilled(p peer) result {
	s := p.make(every(time.Second, 2))
	first := s.reserve("k")
	s.set(time.Second)
	s.admittedOf(2)
	first()
	if n, _ := s.admittedOf(1); n != 0 {
		return failed("1 a second, burst 2: 1 taken at 0, 2 at 1 s, the first given back there: another is admitted, 4 within 1 s of 3")
	}
	s = p.make(every(10*time.Second, 1))
	first = s.reserve("k")
	for _, at := range []time.Duration{10, 28} {
		s.set(at * time.Second)
		s.admittedOf(1)
	}
	s.set(30 * time.Second)
	first()
	s.set(36 * time.Second)
	if n, _ := s.admittedOf(1); n != 0 {
		return failed("1 each 10 s, burst 1: taken at 0, 10 s and 28 s, the first given back at 30 s: a call at 36 s is admitted, of which there may be one at 38 s")
	}
	return ok()
}
