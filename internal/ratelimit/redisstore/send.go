package redisstore

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"agentgw/internal/ratelimit"
)

// send is the one goroutine that writes to the server. It sends all that waits, and waits
// for nobody: alone a job goes at once, and in a crowd each round trip takes many. As it is
// one, what comes first is run first.
func (l *lane) send() {
	defer l.store.running.Done()
	var k *link
	for {
		select {
		case <-l.ended.Done():
			if k != nil {
				_ = k.end(errAway)
			}
			return
		case <-l.wake:
		}
		if !l.due() {
			continue
		}
		runtime.Gosched() // who was answered just now may ask again: that goes along
		jobs, load, loads := l.unknown.take()
		if !l.away.Load() {
			jobs = append(jobs, l.told.take(manyJobs/2)...)
		}
	fill:
		for len(jobs) < manyJobs {
			select {
			case j := <-l.jobs:
				if j.again || j.state.CompareAndSwap(isWaiting, isSent) { // else nobody waits for it
					jobs = append(jobs, j)
				}
			default:
				break fill
			}
		}
		if len(jobs) > 0 {
			k = l.dispatch(k, jobs, load, loads)
		}
		if len(l.jobs) > 0 || !l.told.empty() && !l.away.Load() {
			l.nudge()
		}
	}
}

// due reports whether what waits is to be sent now. While Redis runs some, as many more may
// be written; fewer wait until those are read, to go with who comes meanwhile: what it takes to
// send one is of the order of what it takes to decide it.
func (l *lane) due() bool {
	flying := l.flying.Load()
	return flying == 0 || l.flights.Load() < underWay && int64(len(l.jobs)) >= flying
}

// nudge has the sender look at what there is.
func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// landed is for when all jobs of a flight have been answered, or have failed.
func (l *lane) landed(f *flight) {
	l.flights.Add(-1)
	l.flying.Add(-f.size)
	l.nudge()
}

// dispatch has the jobs run, in commands of a few together: so Redis runs some while others
// are read from the wire. It returns the connection that it used, if there is one.
func (l *lane) dispatch(k *link, jobs []*job, load bool, loads int64) *link {
	if load {
		l.store.reloads.Add(1)
	}
	f, out := l.written(jobs, load)
	f.loads, f.size = loads, int64(len(jobs))
	l.flights.Add(1)
	l.flying.Add(f.size)
	var err error
	if l.afresh.Swap(false) && k != nil {
		_ = k.end(errAfresh)
		k = nil
	}
	for range 2 { // the server may have ended the connection before it was asked
		if k == nil {
			if k, err = connect(l.ended, l.client(), l.store.program.SHA1, l.store.connecting.wire()); err != nil {
				k = nil
				break
			}
			l.store.running.Add(1)
			go l.receive(k)
		}
		underWay := false
		if underWay, err = k.write(f, out); underWay {
			return k
		}
		k = nil
	}
	for _, jobs := range f.commands {
		l.answer(jobs, f.loads, nil, nil, err)
	}
	l.landed(&f)
	return nil
}

// written are the commands that have the jobs run, and before them, if it is to be loaded,
// the one that gives Redis the program.
func (l *lane) written(jobs []*job, load bool) (f flight, out []byte) {
	out = l.buffer[:0]
	if load {
		out = appendWords(out, "SCRIPT", "LOAD", l.store.program.Text)
		f.commands = append(f.commands, nil)
	}
	offset := l.offset.microseconds()
	deadline := func(j *job) int64 {
		if j.again || offset == 0 {
			return 0
		}
		return j.deadline/1000 + offset
	}
	for _, some := range l.commands(jobs) {
		if some[0].asking {
			out = appendWords(out, "ASKING")
			f.commands = append(f.commands, nil)
		}
		out = appendCommand(out, l.store.program.SHA1, some, deadline)
		f.commands = append(f.commands, some)
	}
	l.buffer = out
	return f, out
}

// answer hands each of the jobs of a command its part of the reply. What Redis did not know
// the program for, as after a restart, a failover or SCRIPT FLUSH, is sent once more.
func (l *lane) answer(jobs []*job, loads int64, numbers []byte, others []string, err error) {
	divide(jobs, numbers, others, err)
	for _, j := range jobs {
		switch c := l.store.cluster; {
		case isNoScript(j.err) && !j.unknown:
			l.unknown.add(j, loads)
		case c != nil && j.err != nil && c.redirect(l, j, j.err): // it goes on elsewhere
		default:
			l.settle(j)
		}
	}
}

// commands are the jobs that go in one command each: a few, and in a Cluster those of one
// slot, as all keys of a command have to be of one.
func (l *lane) commands(jobs []*job) (list [][]*job) {
	if l.store.cluster == nil {
		return slices.Collect(slices.Chunk(jobs, l.store.together))
	}
	type group struct {
		slot   int
		asking bool
	}
	last := map[group]int{} // place of the one that more of the group may go with
	for _, j := range jobs {
		of := group{slotOf(j.Keys[0]), j.asking}
		if i, found := last[of]; found && !j.alone && len(list[i]) < l.store.together {
			list[i] = append(list[i], j)
			continue
		}
		if !j.alone {
			last[of] = len(list)
		}
		list = append(list, []*job{j})
	}
	return list
}

// settle hands a job's answer to whoever waits for it, or keeps a told one that was not
// run.
func (l *lane) settle(j *job) {
	values, err := j.values, j.err
	j.err, j.asking, j.alone, j.unknown, j.tries, j.sentOn = nil, false, false, false, 0, 0
	switch {
	case err != nil:
		j.err = reasonOf(err)
	case values[0] < 0:
		l.offset.learn(-values[0], l.store.nanos.Nanos())
		j.err = &Error{Reason: Late}
	default:
		l.offset.learn(values[0], l.store.nanos.Nanos())
		j.answer = ratelimit.Answer{Number: l.store.number.Add(1), Values: values[1:]}
	}
	if j.again {
		var of *Error
		if errors.As(j.err, &of) {
			if of.Reason != Script && !j.Once { // a script would fail again
				l.keep(j)
			}
			_ = l.failure(j.err)
		}
		return
	}
	close(j.done)
}

// told is what is told and was not run yet.
type told struct {
	mu   sync.Mutex
	list []*job
}

func (t *told) add(j *job) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) >= toldMax {
		return false
	}
	t.list = append(t.list, j)
	return true
}

func (t *told) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.list) == 0
}

func (t *told) take(n int) (list []*job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = min(n, len(t.list))
	list = append(list, t.list[:n]...)
	t.list = t.list[n:]
	return list
}

// unknown is what was sent, and did not run, as Redis did not know the program.
type unknown struct {
	mu    sync.Mutex
	list  []*job
	load  bool  // Redis was not given the program since
	loads int64 // how many times it was
}

// add has a job wait to be sent once more, when its flight has landed. loads is how many times Redis had been given the
// program when it was sent.
func (u *unknown) add(j *job, loads int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	j.unknown = true
	u.list, u.load = append(u.list, j), u.load || loads == u.loads
}

// take is all of it, whether Redis is to be given the program before, and how many times it
// will have been.
func (u *unknown) take() (list []*job, load bool, loads int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list, load = u.list, u.load
	u.list, u.load = nil, false
	if load {
		u.loads++
	}
	return list, load, u.loads
}
