package redistest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentgw/internal/freeport"
)

// Cluster is a Redis Cluster of three masters with a third of the slots each.
type Cluster struct {
	Nodes []*Server
	t     testing.TB
}

// StartCluster starts one that ends with the test, or skips the test as Start does. args
// are options of each node.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var buses []string
	for range 3 {
		bus := freeport.Port(t)
		c.Nodes = append(c.Nodes, Start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "3000", "--cluster-config-file", "nodes.conf",
		}, args...)...))
		buses = append(buses, bus)
	}
	const slots = 16384
	for i, n := range c.Nodes {
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		n.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/3), strconv.Itoa((i+1)*slots/3-1))
	}
	wait(t, "the cluster is whole", func() bool {
		whole := true
		for i, n := range c.Nodes {
			info := n.Do("CLUSTER", "INFO")
			if strings.Contains(info, "cluster_known_nodes:1\r") { // or nobody heard of it in time, which on a busy machine happens
				c.meet(n, c.Nodes[(i+1)%3], buses[(i+1)%3])
			}
			whole = whole && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		}
		return whole
	})
	return c
}

func (c *Cluster) meet(n, other *Server, bus string) {
	host, port, _ := net.SplitHostPort(other.Addr)
	n.Do("CLUSTER", "MEET", host, port, bus)
}

// URL is where it is, by two of its nodes.
func (c *Cluster) URL() string { return "redis+cluster://" + c.Nodes[0].Addr + "," + c.Nodes[1].Addr }

// Of is the node that has a key.
func (c *Cluster) Of(key string) *Server {
	c.t.Helper()
	slot, _ := strconv.Atoi(c.Slot(key))
	for _, n := range c.Nodes {
		for line := range strings.Lines(n.Do("CLUSTER", "NODES")) {
			fields := strings.Fields(line)
			if len(fields) < 9 || !strings.Contains(fields[2], "myself") {
				continue
			}
			for _, r := range fields[8:] {
				first, last, _ := strings.Cut(r, "-")
				from, err := strconv.Atoi(first)
				to, errTo := strconv.Atoi(last)
				if last == "" {
					to, errTo = from, nil
				}
				if err == nil && errTo == nil && from <= slot && slot <= to {
					return n
				}
			}
		}
	}
	c.t.Fatalf("nobody has slot %d", slot)
	return nil
}

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) string {
	return strings.TrimPrefix(c.Nodes[0].Do("CLUSTER", "KEYSLOT", key), ":")
}

// Do runs a command where a key is.
func (c *Cluster) Do(key string, args ...string) string {
	c.t.Helper()
	return c.Of(key).Do(args...)
}

// Migrate moves the slot of a key from who has it to another node, key by key, with its
// calls going on meanwhile, as redis-cli does it. between is called when each key has been
// moved, before the move is told.
func (c *Cluster) Migrate(key string, between func()) {
	c.t.Helper()
	from, slot := c.Of(key), c.Slot(key)
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%len(c.Nodes)]
	id := func(n *Server) string {
		_, text, _ := strings.Cut(n.Do("CLUSTER", "MYID"), "\r\n")
		return text
	}
	ok := func(reply string) {
		c.t.Helper()
		if !strings.HasPrefix(reply, "+") {
			c.t.Fatal(reply)
		}
	}
	ok(to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", id(from)))
	ok(from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", id(to)))
	host, port, _ := net.SplitHostPort(to.Addr)
	for range 1000 {
		names := keysOf(from.Do("CLUSTER", "GETKEYSINSLOT", slot, "1"))
		if len(names) == 0 {
			break
		}
		ok(from.Do("MIGRATE", host, port, names[0], "0", "5000"))
		between()
	}
	ok(to.Do("CLUSTER", "SETSLOT", slot, "NODE", id(to)))
	ok(from.Do("CLUSTER", "SETSLOT", slot, "NODE", id(to)))
	for _, n := range c.Nodes {
		if n != from && n != to {
			n.Do("CLUSTER", "SETSLOT", slot, "NODE", id(to))
		}
	}
}

// keysOf are the strings of an array as it stands on the wire.
func keysOf(reply string) (names []string) {
	lines := strings.Split(reply, "\r\n")
	for i := 1; i+1 < len(lines); i += 2 {
		names = append(names, lines[i+1])
	}
	return names
}

// wait waits for an effect.
func wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(fmt.Sprint("never: ", what))
		}
	}
}
