package redisstore

import (
	"errors"
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
		case <-l.store.ended.Done():
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
		if isNoScript(j.cmd.Err()) {
			unknown = append(unknown, j)
			continue
		}
		l.settle(j)
	}
	if len(unknown) == 0 {
		return
	}
	l.store.reloads.Add(1)
	l.load()
	l.exchange(unknown)
	for _, j := range unknown {
		l.settle(j)
	}
}

func (l *lane) exchange(jobs []*job) {
	pipe := l.client.Pipeline()
	offset := l.offset.microseconds()
	for _, j := range jobs {
		deadline := int64(0)
		if !j.again && offset != 0 {
			deadline = j.deadline/1000 + offset
		}
		args := make([]any, 0, 1+len(j.Args))
		args = append(append(args, deadline), j.Args...)
		j.cmd = pipe.EvalSha(l.store.ended, l.store.script(j.Script).SHA1, j.Keys, args...)
	}
	_, _ = pipe.Exec(l.store.ended) // each has its own error
}

// load gives Redis the scripts, as after a restart, a failover or SCRIPT FLUSH.
func (l *lane) load() {
	pipe := l.client.Pipeline()
	for _, script := range ratelimit.Scripts() {
		pipe.ScriptLoad(l.store.ended, l.store.script(script).Text)
	}
	_, _ = pipe.Exec(l.store.ended) // what is missing then says so again
}

// settle hands a job's answer to whoever waits for it, or keeps a told one that was not
// run.
func (l *lane) settle(j *job) {
	values, err := j.cmd.Int64Slice()
	j.err = nil // of the time before, if it is told again
	switch {
	case errors.Is(err, redis.Nil):
		j.err = &Error{Reason: Other, Err: err}
	case err != nil:
		j.err = reasonOf(err)
	case len(values) == 0 || values[0] < 0:
		if len(values) > 0 {
			l.offset.learn(-values[0], l.store.nanos.Nanos())
		}
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
