package compared

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	ms   = time.Millisecond
	hour = time.Hour
)

// checkBurst lets a moment pass between the calls.
func checkBurst(p peer) result {
	quotas := []quota{every(hour, 10)}
	if !p.ownTime {
		quotas = append(quotas, quota{10, time.Second, 20}, quota{3, time.Second, 30})
	}
	for _, q := range quotas {
		s, admitted := p.make(q), 0
		for i := range time.Duration(50) {
			s.set(i * rounding)
			if s.take("k").admitted {
				admitted++
			}
		}
		if admitted != q.burst {
			return failed("%v: of 50 calls within %v %d are admitted", q, 50*rounding, admitted)
		}
	}
	return ok()
}

func ending(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf(", and one ends in “%v”", err)
}

// checkWindow: a crowd whose calls come at times that look like chance.
func checkWindow(p peer) result {
	q := quota{10, time.Second, 5}
	s := p.make(q)
	var admitted []time.Duration
	now, random := time.Duration(0), uint32(1)
	for range 400 {
		random = random*1664525 + 1013904223 // Numerical Recipes' generator
		now += time.Duration(random>>24%30) * 5 * ms
		s.set(now)
		if s.take("k").admitted {
			admitted = append(admitted, now)
		}
	}
	for i, from := range admitted {
		for j := i; j < len(admitted); j++ {
			if span, n := admitted[j]-from, j-i+1; n > q.burst+int(span/q.interval()) {
				return failed("10 a second, burst 5: %d admitted within %v", n, span)
			}
		}
	}
	return ok()
}

// paces are the quotas at which rounding shows, if anywhere.
var paces = []quota{{10, time.Second, 1}, {3, time.Second, 1}, {7, time.Second, 5}, {1000, time.Second, 100}, {60, time.Minute, 60}, {100, time.Minute, 1}}

func checkPace(p peer) result {
	for _, q := range paces {
		q.burst = 1
		s, interval := p.make(q), q.interval()
		for i := range time.Duration(1000) {
			now := i*interval + i*rounding
			s.set(now)
			if a := s.take("k"); !a.admitted {
				return failed("%v, a call each %v: the one at %v is refused%s", q, interval+rounding, now, a.told())
			}
		}
	}
	return ok()
}

// rounding is a difference in time that is passed over: who calculates in
// fractions is not to be blamed for the last digit.
const rounding = 10 * time.Microsecond

// told is what a refused call is told, for a history.
func (a answer) told() string {
	if a.wait == nil {
		return ""
	}
	wait, _ := a.wait()
	return fmt.Sprintf(", with a wait of %v", wait.Round(100*time.Microsecond))
}

func checkIdle(p peer) result {
	s, now := p.make(every(time.Second, 20)), time.Duration(0)
	s.admittedOf(20)
	for _, rest := range []time.Duration{30 * time.Second, hour, 365 * 24 * hour} {
		now += rest
		s.set(now)
		if n, err := s.admittedOf(50); n != 20 || err != nil {
			return failed("1 a second, burst 20: drained, and after a rest of %v %d are admitted%s", rest, n, ending(err))
		}
	}
	return ok()
}

// checkStale: a call has the timestamp of its arrival, and may come after one
// that arrived a second later.
func checkStale(p peer) result {
	s, admitted := p.make(quota{10, time.Second, 10}), 0
	for i := range 2000 {
		s.set(time.Duration(i%2) * time.Second)
		if s.take("k").admitted {
			admitted++
		}
	}
	if admitted > 20 {
		return failed("10 a second, burst 10: of 2000 calls, in turn at 0 and at 1 s, %d are admitted, of 20", admitted)
	}
	return ok()
}

func checkSteps(p peer) result {
	if !p.wallClock {
		return result{notAsked, "it goes by Go's monotonic clock, which nobody sets"}
	}
	s := p.make(quota{10, time.Second, 10})
	s.set(2 * hour)
	s.admittedOf(10)
	s.set(hour)
	if n, _ := s.admittedOf(1); n != 0 {
		return failed("10 a second, burst 10: drained at 2 h; set back to 1 h, it admits a call")
	}
	// The window, an interval and a second.
	s.set(hour + 2100*ms)
	if a := s.take("k"); !a.admitted {
		return failed("10 a second, burst 10: drained at 2 h, and the clock set back to 1 h: 2.1 s later a call is refused%s", a.told())
	}
	return ok()
}

// together runs 64 goroutines with 50 calls each.
func together(s subject) (admitted int64, err error) {
	var n atomic.Int64
	var first atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 50 {
				a := s.take("k")
				if a.err != nil {
					first.CompareAndSwap(nil, &a.err)
				}
				if a.admitted {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if e := first.Load(); e != nil {
		err = *e
	}
	return n.Load(), err
}

// checkCrowd counts what is admitted. Whether all were decided is another
// question: see checkDecided.
func checkCrowd(p peer) result {
	if n, _ := together(p.make(every(hour, 100))); n != 100 {
		return failed("burst 100: 64 goroutines with 50 calls each get %d", n)
	}
	return ok()
}

// checkDecided does not leave it to chance who overtakes whom.
func checkDecided(p peer) result {
	if p.overtaken == nil {
		if _, err := together(p.make(every(hour, 100))); err != nil {
			return failed("burst 100, 64 goroutines with 50 calls each: %v", err)
		}
		return ok()
	}
	s := p.overtaken(every(hour, 100))
	if a := s.take("k"); a.err != nil {
		return failed("burst 100: a call that 10 others overtake ends in “%v”, with 90 tokens left", a.err)
	}
	return ok()
}
