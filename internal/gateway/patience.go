package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// patience ends an upstream call that takes too long: to begin its answer, to
// go on with it, or as a whole. It is one timer for all three, and what is heard
// only moves the time at which that timer ends the call, since a timer set anew
// for each of them would be dearer than the rest of relaying.
//
// Safe for concurrent use. It must be stopped.
type patience struct {
	clock  clockwork.Clock
	cancel context.CancelCauseFunc
	idle   time.Duration // silence that is borne while an answer comes; 0: any

	mu      sync.Mutex
	silence bound
	age     bound
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

// await bears silence for as long as d until an answer begins; 0 is for ever.
func (p *patience) await(now time.Time, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d > 0 {
		p.silence = bound{now.Add(d), errFirstByte}
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
	if p.idle <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silence.at.IsZero() {
		p.silence.at = p.clock.Now().Add(p.idle)
	}
}

// stop is that there is nothing to end any more.
func (p *patience) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence, p.age = bound{}, bound{}
	if p.timer != nil {
		p.timer.Stop()
	}
}

// setLocked has the timer ring when the first bound is reached, or before:
// where it is set to an earlier time it is left to find nothing reached.
func (p *patience) setLocked(now time.Time) {
	first := p.silence.at
	if first.IsZero() || !p.age.at.IsZero() && p.age.at.Before(first) {
		first = p.age.at
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

func (p *patience) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for _, b := range []bound{p.silence, p.age} {
		if b.reached(now) {
			p.cancel(b.cause)
			return
		}
	}
	p.rings = time.Time{}
	p.setLocked(now)
}
