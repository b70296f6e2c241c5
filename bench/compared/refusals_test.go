package compared

import "time"

// checkFree asks a millisecond after the token is due, so that rounding does not
// matter.
func checkFree(p peer) result {
	s := p.make(every(time.Second, 10))
	s.admittedOf(10)
	for i := range time.Duration(1000) {
		s.set(i * ms / 2)
		if s.take("k").admitted {
			return failed("1 a second, burst 10: drained at 0, it admits another at %v", i*ms/2)
		}
	}
	s.set(1001 * ms)
	if n, _ := s.admittedOf(3); n != 1 {
		return failed("1 a second, burst 10: drained at 0 and 1000 calls refused; after 1 s %d are admitted", n)
	}
	return ok()
}

// drain takes all tokens from a bucket that nobody used for long, at a time with
// no round number of anything, and returns what the next call is told.
func (s subject) drain(q quota, at time.Duration) (wait time.Duration, never bool) {
	s.set(at)
	s.admittedOf(q.burst)
	return s.take("k").wait()
}

var starts = []time.Duration{0, 100 * ms, 123_456 * time.Microsecond, 12_345_678 * time.Microsecond}

func checkWaitEnough(p peer) result {
	for _, q := range paces {
		for _, at := range starts {
			s := p.make(q)
			wait, _ := s.drain(q, at)
			s.set(at + wait + rounding)
			if a := s.take("k"); !a.admitted {
				return failed("%v: drained at %v, told to wait %v, and after that refused again%s", q, at, wait, a.told())
			}
		}
	}
	return ok()
}

func checkWaitExact(p peer) result {
	for _, q := range paces {
		for _, at := range starts {
			s := p.make(q)
			wait, _ := s.drain(q, at)
			s.set(at + wait - rounding)
			if s.take("k").admitted {
				return failed("%v: drained at %v, told to wait %v, and admitted %v earlier", q, at, wait, rounding)
			}
		}
	}
	return ok()
}
