package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// patience ends a call that takes too long: to get a slot, to begin its answer, to
// go on with it, or as a whole; and one whose key's time is over. It is one timer for
// all of these, and what is heard only moves the time at which that timer ends the
// call, since a timer set anew for each of them would be dearer than the rest of relaying.
//
// Safe for concurrent use. It must be stopped.
type patience struct {
	clock  clockwork.Clock
	cancel context.CancelCauseFunc
	idle   time.Duration // silence that is borne while an answer comes; 0: any

	mu      sync.Mutex
	silence bound
	age     bound
	life    bound // of the key
	held    bool  // silence is nobody's fault for now
	over    bool  // nothing is to be ended any more
	timer   timer
	rings   time.Time // when the timer does; zero: it is not set
}

// bound is when a call is ended, and why. The zero bound is none.
type bound struct {
	at    time.Time
	cause error
}

func (b bound) reached(now time.Time) bool { return !b.at.IsZero() && !now.Before(b.at) }

type timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

// await bears silence for as long as d until what is waited for begins; 0 is for ever.
func (p *patience) await(now time.Time, d time.Duration, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d > 0 {
		p.silence = bound{now.Add(d), cause}
		p.setLocked(now)
	}
}

// awaitSent is await for what begins when all has been said: each thing that is
// heard until then has d begin anew.
func (p *patience) awaitSent(now time.Time, d time.Duration, cause error) {
	p.idle = d
	p.await(now, d, cause)
}

// hold bears any silence until goOn, from when on it counts anew.
func (p *patience) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
}

func (p *patience) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	if now := p.clock.Now(); !p.silence.at.IsZero() && !p.over {
		p.silence.at = now.Add(p.idle)
		p.setLocked(now)
	}
}

// until has the call end with its key at that time; the zero time is never. What was
// said before does not hold any more.
func (p *patience) until(now, end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over { // whoever changes keys does not know
		p.life = bound{end, errGone}
		p.setLocked(now)
	}
}

// follow bears an answer that has begun: each silence in it for as long as idle,
// and all of it for as long as most. 0 is for ever.
func (p *patience) follow(now time.Time, idle, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle, p.silence = idle, bound{}
	if idle > 0 {
		p.silence = bound{now.Add(idle), errStreamIdle}
	}
	if most > 0 {
		p.age = bound{now.Add(most), errStreamMax}
	}
	p.setLocked(now)
}

// heard is that something came.
func (p *patience) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silence.at.IsZero() {
		p.silence.at = p.clock.Now().Add(p.idle)
	}
}

// linger bears silence for as long as d from now on, if that is less than is borne; 0 is
// no less.
func (p *patience) linger(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d <= 0 || p.over || p.idle > 0 && p.idle <= d {
		return
	}
	now := p.clock.Now()
	p.idle, p.silence = d, bound{now.Add(d), errStreamIdle}
	p.setLocked(now)
}

// stop is that there is nothing to end any more.
func (p *patience) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence, p.age, p.life, p.over = bound{}, bound{}, bound{}, true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// setLocked has the timer ring when the first bound is reached, or before:
// where it is set to an earlier time it is left to find nothing reached.
func (p *patience) setLocked(now time.Time) {
	var first time.Time
	for _, b := range p.boundsLocked() {
		if first.IsZero() || !b.at.IsZero() && b.at.Before(first) {
			first = b.at
		}
	}
	if first.IsZero() || !p.rings.IsZero() && !first.Before(p.rings) {
		return
	}
	p.rings = first
	if p.timer == nil {
		p.timer = p.clock.AfterFunc(first.Sub(now), p.ring)
		return
	}
	p.timer.Reset(first.Sub(now))
}

// boundsLocked are those that count now.
func (p *patience) boundsLocked() [3]bound {
	if p.held {
		return [3]bound{{}, p.age, p.life}
	}
	return [3]bound{p.silence, p.age, p.life}
}

func (p *patience) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for _, b := range p.boundsLocked() {
		if b.reached(now) {
			p.cancel(b.cause)
			return
		}
	}
	p.rings = time.Time{}
	p.setLocked(now)
}
