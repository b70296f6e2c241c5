package redisstore

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"agentgw/internal/ratelimit"
)

const (
	// mapEvery is how often a Cluster is asked who has which slots, if nothing was
	// different meanwhile from what it said.
	mapEvery = 5 * time.Second
	// lingers is how long a lane is kept that no slot leads to any more, for whoever was
	// about to use it.
	lingers   = time.Minute
	redirects = 16 // that one job follows
	tries     = 3  // of a job whose keys are on the way from one server to another
)

// cluster knows which server of a Redis Cluster has which slots.
//
// go-redis has a client for Clusters. It is not used: it sends what may have run again,
// waits between that, for all jobs of a pipeline, whatever server they are for, and has
// one place for what is different with each server, as their clocks are.
type cluster struct {
	store *Store
	by    [slots]atomic.Pointer[lane] // nil: nobody has it
	stale atomic.Bool                 // something was different from what was known
	known atomic.Bool                 // who has which slots has been told, once

	mu    sync.Mutex
	lanes map[string]*lane // by address
}

// openCluster asks who has which slots, until it is told, and then again from time to
// time. Until then the store counts as away.
func (s *Store) openCluster() {
	s.cluster = &cluster{store: s, lanes: map[string]*lane{}}
	s.away.Add(1)
	s.running.Add(1)
	go s.cluster.follow()
}

func (c *cluster) follow() {
	s := c.store
	defer s.running.Done()
	ticker := s.options.Clock.NewTicker(probeEvery)
	defer ticker.Stop()
	asked := s.nanos.Nanos()
	first := true // nobody has been decided by anything else yet
	for told := c.ask(); ; first = false {
		switch {
		case c.known.Load():
		case told != nil:
			if first {
				s.count(told)
			}
			s.tell(told)
		case first || s.options.Back == nil || s.options.Back(probing{store: s}) == nil:
			c.known.Store(true)
			s.away.Add(-1)
			s.tell(nil)
		}
		if first {
			close(s.tried)
		}
		select {
		case <-s.ended.Done():
			return
		case <-ticker.Chan():
		}
		now := s.nanos.Nanos()
		c.bury(now)
		if stale := c.stale.Swap(false); stale || !c.known.Load() || now-asked >= int64(mapEvery) {
			told, asked = c.ask(), now
		}
	}
}

// ask asks one server after the other who has which slots: those that are known, then
// those that the URL names.
func (c *cluster) ask() error {
	c.mu.Lock()
	var known []string
	for address, l := range c.lanes {
		if !l.retired.Load() {
			known = append(known, address)
		}
	}
	c.mu.Unlock()
	why := &Error{Reason: Down} // if all say that nobody has any
	for _, address := range append(known, c.store.connecting.Hosts...) {
		client := c.store.connecting.server(address)
		of, err := client.ClusterShards(c.store.ended).Result()
		_ = client.Close()
		if err == nil && c.learn(of, address) {
			return nil
		} else if err != nil {
			why = reasonOf(err)
		}
	}
	return why
}

// learn takes in who has which slots, as the server at an address says, if it says
// anything.
func (c *cluster) learn(shards []redis.ClusterShard, from string) bool {
	var by [slots]*lane
	found := false
	for i := range shards {
		address := c.master(&shards[i], from)
		if address == "" || len(shards[i].Slots) == 0 {
			continue
		}
		l := c.at(address)
		for _, r := range shards[i].Slots {
			for slot := max(0, r.Start); slot <= min(slots-1, r.End); slot++ {
				by[slot], found = l, true
			}
		}
	}
	if !found {
		return false
	}
	for i, l := range by {
		if l != nil { // one that nobody has is with whoever had it, if anywhere
			c.by[i].Store(l)
		}
	}
	used := c.uses()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.store.nanos.Nanos()
	for _, l := range c.lanes {
		if !used[l] && !l.retired.Load() {
			l.retire(now)
		}
	}
	return true
}

// master is where the master of a shard may be reached; "" if that has none. A failed one
// is better than none: another may be on its way.
func (c *cluster) master(of *redis.ClusterShard, from string) (address string) {
	for _, n := range of.Nodes {
		if n.Role != "master" || address != "" && n.Health != "online" {
			continue
		}
		port := n.Port
		if c.store.TLS {
			port = n.TLSPort
		}
		address = reach(net.JoinHostPort(n.Endpoint, strconv.FormatInt(port, 10)), from)
	}
	return address
}

// reach is an address that a server told, as one may reach it: a server that does not know
// its own name leaves it out.
func reach(address, from string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" && host != "?" {
		return address
	}
	host, _, _ = net.SplitHostPort(from)
	return net.JoinHostPort(host, port)
}

// at is the lane to an address.
func (c *cluster) at(address string) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[address]
	if l == nil {
		l = c.store.openAt(address)
		c.lanes[address] = l
		if c.known.Load() && c.store.Away() {
			l.goAway(errFailedOver, true)
		}
	}
	l.retired.Store(false)
	return l
}

// uses are the lanes that slots lead to.
func (c *cluster) uses() map[*lane]bool {
	used := map[*lane]bool{}
	for i := range c.by {
		used[c.by[i].Load()] = true
	}
	return used
}

// any is the lane to one of the servers that slots lead to, by turns; nil if none is known.
func (c *cluster) any(turn int) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	var known []string
	for address, l := range c.lanes {
		if !l.retired.Load() {
			known = append(known, address)
		}
	}
	if len(known) == 0 {
		return nil
	}
	slices.Sort(known)
	return c.lanes[known[turn%len(known)]]
}

// bury ends lanes that nobody uses any more.
func (c *cluster) bury(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, l := range c.lanes {
		if l.retired.Load() && now-l.since.Load() >= int64(lingers) {
			delete(c.lanes, address)
			l.end()
		}
	}
}

// lane is the way to whoever has a job's keys; nil if that was never known.
func (c *cluster) lane(of ratelimit.Job) *lane { return c.by[slotOf(of.Keys[0])].Load() }

// probe is a job that the server of a lane can be asked; none if no slot leads to it.
func (c *cluster) probe(l *lane) (job ratelimit.Job, found bool) {
	if !c.uses()[l] {
		return job, false
	}
	for i := range 100 * slots {
		if job = ratelimit.ProbeOf(strconv.Itoa(i)); c.lane(job) == l {
			return job, true
		}
	}
	return job, false
}

// redirect has a job run where an error says, and reports whether it does. None of these
// is of a job that has run.
func (c *cluster) redirect(from *lane, j *job, err error) bool {
	word, rest, _ := strings.Cut(err.Error(), " ")
	to := from
	switch {
	case word == "TRYAGAIN" && j.tries < tries:
		j.tries++
		j.asking, j.alone = false, true
		if by := c.lane(j.Job); by != nil {
			to = by
		}
		to.resume(j)
		return true
	case word == "MOVED" || word == "ASK":
		slot, address, _ := strings.Cut(rest, " ")
		i, err := strconv.Atoi(slot)
		if err != nil || i < 0 || i >= slots || address == "" {
			return false
		}
		if j.sentOn++; j.sentOn > redirects {
			j.sentOn = 0
			return false
		}
		to = c.at(reach(address, from.address))
		j.asking = word == "ASK"
		to.resume(j)         // from here on it is another's
		if word == "MOVED" { // only now: who comes next is to come after it
			c.by[i].Store(to)
			c.stale.Store(true)
		}
		return true
	}
	return false
}

var errFailedOver = &Error{Reason: Network, Err: errors.New("another server has taken over")}
