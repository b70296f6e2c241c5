package main

import "time"

// pace is a connection's share of a job's rate. The zero pace is none: each
// request follows the answer to the one before.
type pace struct {
	next  time.Time
	every time.Duration
}

// pace is that of connection i, which takes its turn among the others.
func (j *job) pace(began time.Time, i int) pace {
	if j.Rate == 0 {
		return pace{}
	}
	every := time.Duration(float64(j.Conns) / j.Rate * float64(time.Second))
	return pace{next: began.Add(every * time.Duration(i) / time.Duration(j.Conns)), every: every}
}

// wait returns when the next request is due, with the time from which its answer
// is waited for. That is the time at which it was due where the answer before kept
// it from being sent: a slow answer must not hide how long those behind it would
// have waited. Where it could have been sent it is now, since that a timer is late
// is no fault of whoever answers.
func (p *pace) wait() time.Time {
	if p.every == 0 {
		return time.Now()
	}
	due := p.next
	p.next = due.Add(p.every)
	if left := time.Until(due); left > 0 {
		time.Sleep(left)
		return time.Now()
	}
	return due
}
