package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// job is what a load generator is told on its standard input.
type job struct {
	Address  string
	Conns    int
	Seconds  float64  // how long; 0 where Total says how many
	Total    int64    // answers, of all connections together
	Requests []string // sent in turn, each connection from a place of its own
	Status   int      // what each answer has to be
	Length   int64    // of each body; -1 for any
	Rate     float64  // requests a second, of all connections together; 0 is as fast as they are answered
	Refused  bool     // a 429 is as good an answer, and is counted
	Hold     bool     // open Conns streams, read their first event, and keep them
}

// result is what it says when it is done, or all its streams are open.
type result struct {
	Answers  int64
	Wrong    int64 // of another status or length
	Cut      int64 // bodies that ended before their end
	Refused  int64 // of status 429, where that is as good
	Seconds  float64
	P50, P99 time.Duration
	First    string // the first thing that was wrong
}

// load is the load generator: so many connections, each of which waits for its
// answer before it asks again.
func load() error {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return err
	}
	if j.Hold {
		return j.hold()
	}
	r, err := j.run()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (j *job) run() (result, error) {
	conns := make([]net.Conn, j.Conns)
	for i := range conns {
		c, err := net.Dial("tcp", j.Address)
		if err != nil {
			return result{}, err
		}
		conns[i] = c
	}
	var left atomic.Int64
	left.Store(j.Total)
	began := time.Now()
	until := began.Add(time.Duration(j.Seconds * float64(time.Second)))
	more := func() bool {
		if j.Total > 0 {
			return left.Add(-1) >= 0
		}
		return time.Now().Before(until)
	}
	callers := make([]caller, j.Conns)
	var wg sync.WaitGroup
	for i := range callers {
		callers[i] = caller{job: j, conn: conns[i], next: i * len(j.Requests) / j.Conns, pace: j.pace(began, i)}
		wg.Go(func() { callers[i].run(more) })
	}
	wg.Wait()
	return summary(callers, time.Since(began)), nil
}

// caller is one connection.
type caller struct {
	*job
	conn  net.Conn
	next  int
	pace  pace
	took  []time.Duration
	wrong int64
	cut   int64
	no    int64 // refused
	first string
}

func (c *caller) run(more func() bool) {
	defer func() { _ = c.conn.Close() }()
	r := bufio.NewReaderSize(c.conn, 16<<10)
	for more() {
		request := c.Requests[c.next%len(c.Requests)]
		c.next++
		began := c.pace.wait()
		m, n, err := exchange(c.conn, r, request)
		c.took = append(c.took, time.Since(began))
		if err != nil {
			c.cut++
			c.note(fmt.Sprintf("cut after %d bytes: %v", n, err))
			if !c.again(&r) {
				return
			}
			continue
		}
		if c.Refused && m.status() == 429 {
			c.no++
		} else if m.status() != c.Status || c.Length >= 0 && n != c.Length {
			c.wrong++
			c.note(fmt.Sprintf("%s, %d bytes", m.start, n))
		}
	}
}

// again dials anew after a cut.
func (c *caller) again(r **bufio.Reader) bool {
	_ = c.conn.Close()
	conn, err := net.Dial("tcp", c.Address)
	if err != nil {
		return false
	}
	c.conn = conn
	(*r).Reset(conn)
	return true
}

func (c *caller) note(text string) {
	if c.first == "" {
		c.first = text
	}
}

func exchange(w io.Writer, r *bufio.Reader, request string) (message, int64, error) {
	if _, err := io.WriteString(w, request); err != nil {
		return message{}, 0, err
	}
	m, err := readHead(r)
	if err != nil {
		return m, 0, err
	}
	n, err := discardBody(r, m)
	return m, n, err
}

func summary(callers []caller, took time.Duration) result {
	r := result{Seconds: took.Seconds()}
	var all []time.Duration
	for _, c := range callers {
		all = append(all, c.took...)
		r.Wrong += c.wrong
		r.Cut += c.cut
		r.Refused += c.no
		if r.First == "" {
			r.First = c.first
		}
	}
	slices.Sort(all)
	r.Answers = int64(len(all))
	r.P50, r.P99 = quantile(all, 0.5), quantile(all, 0.99)
	return r
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// hold opens the streams, a few at a time, says so, and keeps them until it is
// killed, as clients are that vanish.
func (j *job) hold() error {
	var open, cut atomic.Int64
	var opening sync.WaitGroup
	gate := make(chan struct{}, 64)
	began := time.Now()
	for i := range j.Conns {
		gate <- struct{}{}
		opening.Go(func() {
			defer func() { <-gate }()
			c, err := net.Dial("tcp", j.Address)
			if err != nil {
				cut.Add(1)
				return
			}
			r := bufio.NewReaderSize(c, 512)
			_, err = io.WriteString(c, j.Requests[i%len(j.Requests)])
			m, errHead := readHead(r)
			if err != nil || errHead != nil || m.status() != j.Status {
				cut.Add(1)
				return
			}
			if _, err := r.ReadSlice('}'); err != nil {
				cut.Add(1)
				return
			}
			kept.Store(c, true)
			open.Add(1)
		})
	}
	opening.Wait()
	err := json.NewEncoder(os.Stdout).Encode(result{Answers: open.Load(), Cut: cut.Load(), Seconds: time.Since(began).Seconds()})
	if err != nil {
		return err
	}
	select {}
}

var kept sync.Map // of connections: what is not reachable would be closed
