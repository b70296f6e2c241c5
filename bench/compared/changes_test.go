package compared

import (
	"fmt"
	"time"
)

func checkRaisedRate(p peer) result {
	s := p.make(every(time.Second, 10))
	s.admittedOf(10)
	s.change(every(10*ms, 10))
	s.set(11 * ms)
	if a := s.take("k"); !a.admitted {
		return failed("1 a second, burst 10: drained at 0, and then 1 each 10 ms: a call at 11 ms is refused%s", a.told())
	}
	return ok()
}

func checkRaisedBurst(p peer) result {
	s := p.make(every(hour, 10))
	s.admittedOf(10)
	s.change(every(hour, 20))
	if n, _ := s.admittedOf(30); n != 0 {
		return failed("1 an hour, burst 10: drained, and then burst 20: %d are admitted at once", n)
	}
	return ok()
}

func checkLowered(p peer) result {
	s := p.make(every(hour, 100))
	s.admittedOf(1)
	s.change(every(hour, 10))
	if n, _ := s.admittedOf(200); n > 10 {
		return failed("1 an hour, burst 100: 1 taken, and then burst 10: %d are admitted at once", n)
	}
	return ok()
}

func checkToAndFro(p peer) result {
	s, admitted := p.make(every(hour, 10)), 0
	s.admittedOf(10)
	for range 5 {
		for _, q := range []quota{every(time.Minute, 10), every(hour, 10)} {
			s.change(q)
			n, _ := s.admittedOf(15)
			admitted += n
		}
	}
	if admitted > 0 {
		return failed("1 an hour, burst 10: drained, and then ten times in turn 1 a minute and 1 an hour: %d are admitted at once", admitted)
	}
	return ok()
}

// checkNonsense: to be refused when it is set is best; an error at every call or
// a panic is too late, and to limit nothing is the worst.
func checkNonsense(p peer, name string) result {
	of, can := p.nonsense[name]
	if !can {
		return result{notAsked, "its types rule it out"}
	}
	var s subject
	if a := tried(func() (a answer) { s, a.err = of.make(); return a }); a.err != nil {
		if s.take == nil && fmt.Sprintf("%.5s", a.err) == "panic" {
			return failed("`%s` ends in “%v”", of.written, a.err)
		}
		return ok()
	}
	const calls = 1000
	n, err := s.admittedOf(calls)
	switch {
	case err != nil:
		return failed("`%s` is taken, and every call ends in “%v”", of.written, err)
	case n == calls && !of.unlimited && name != burstBig:
		return failed("`%s` is taken, and admits all of %d calls at once", of.written, calls)
	case n == 0 && name == burstBig:
		return failed("`%s` is taken, and admits nothing", of.written)
	}
	return ok()
}

func checkEvicted(p peer) result {
	s := p.bounded(every(hour, 10), 100)
	s.admittedOf(10)
	for i := range 200 {
		s.take(fmt.Sprint("other-", i))
	}
	if n, _ := s.admittedOf(10); n != 0 {
		return failed("a table of 100, 1 an hour, burst 10: drained, then 200 other keys have a call each: %d more are admitted at once", n)
	}
	return ok()
}
