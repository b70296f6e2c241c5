package redisstore

import (
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"agentgw/internal/ratelimit"
)

// send is the one goroutine that speaks to the server. It sends what waits when it has time
// to, as many as there are, and waits for nobody: alone a job goes at once, and in a
// crowd each round trip takes many. As it is one, what comes first is run first.
func (l *lane) send() {
	defer l.store.running.Done()
	batch := make([]*job, 0, manyJobs)
	for {
		batch = batch[:0]
		select {
		case <-l.ended.Done():
			return
		case <-l.wake:
		case j := <-l.jobs:
			batch = append(batch, j)
		}
		if !l.away.Load() {
			batch = append(l.told.take(manyJobs/2), batch...)
		}
	fill:
		for len(batch) < manyJobs {
			select {
			case j := <-l.jobs:
				batch = append(batch, j)
			default:
				break fill
			}
		}
		l.run(batch)
		if !l.told.empty() && !l.away.Load() {
			l.nudge()
		}
	}
}

// run has the jobs run that somebody still waits for, in one round trip; and once more
// those whose scripts Redis did not know.
func (l *lane) run(batch []*job) {
	sent := batch[:0]
	for _, j := range batch {
		if j.again || j.state.CompareAndSwap(isWaiting, isSent) {
			sent = append(sent, j)
		}
	}
	if len(sent) == 0 {
		return
	}
	l.exchange(sent)
	var unknown []*job
	for _, j := range sent {
		if isNoScript(j.err) {
			unknown = append(unknown, j)
			continue
		}
		l.close(j)
	}
	if len(unknown) == 0 {
		return
	}
	l.store.reloads.Add(1)
	l.load()
	l.exchange(unknown)
	for _, j := range unknown {
		l.close(j)
	}
}

// close is the end of a job, unless it goes on elsewhere.
func (l *lane) close(j *job) {
	if c := l.store.cluster; c != nil && j.err != nil && c.redirect(l, j, j.err) {
		return
	}
	l.settle(j)
}

// exchange has the jobs run, in commands of a few together: so Redis runs some while others
// are read from the wire.
func (l *lane) exchange(jobs []*job) {
	offset := l.offset.microseconds()
	deadline := func(j *job) int64 {
		if j.again || offset == 0 {
			return 0
		}
		return j.deadline/1000 + offset
	}
	pipe := l.client.Pipeline()
	commands := l.commands(jobs)
	var sent []*redis.Cmd
	for _, some := range commands {
		if some[0].asking {
			pipe.Do(l.ended, "ASKING")
		}
		sent = append(sent, pipe.Do(l.ended, command(l.store.program.SHA1, some, deadline)...))
	}
	_, failed := pipe.Exec(l.ended)
	for i, some := range commands {
		reply, err := sent[i].Slice()
		if sent[i].Err() == nil && sent[i].Val() == nil { // there was no connection to send it by
			err = failed
		}
		read(some, reply, err)
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

// load gives Redis the program, as after a restart, a failover or SCRIPT FLUSH.
func (l *lane) load() {
	_ = l.client.ScriptLoad(l.ended, l.store.program.Text).Err() // if it is missing then, that is said again
}

// settle hands a job's answer to whoever waits for it, or keeps a told one that was not
// run.
func (l *lane) settle(j *job) {
	values, err := j.values, j.err
	j.err, j.asking, j.alone, j.tries, j.sentOn = nil, false, false, 0, 0
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
		if errors.As(j.err, &of) && of.Reason != Script {
			if !j.Once {
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
