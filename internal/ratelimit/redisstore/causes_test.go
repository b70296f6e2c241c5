package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// cause is one way in which a server is ill.
type cause struct {
	name      string
	args      []string // of the server
	url       func(*redistest.Server) string
	ill, well func(*redistest.Server)
	reason    redisstore.Reason
	says      string // the log
}

var causesOfServers = []cause{
	{name: "MASTERDOWN", reason: redisstore.ReadOnly, says: "name the master",
		ill: func(s *redistest.Server) {
			s.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
			s.Do("REPLICAOF", "127.0.0.1", "1")
		},
		well: func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
	{name: "READONLY", reason: redisstore.ReadOnly, says: "READONLY",
		ill:  func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") },
		well: func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
	{name: "OOM", reason: redisstore.Memory, says: "maxmemory",
		ill:  func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
		well: func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
	{name: "MISCONF", reason: redisstore.Unsaved, says: "stop-writes-on-bgsave-error", args: []string{"--enable-protected-configs", "yes"},
		ill: func(s *redistest.Server) { // it is to save to a folder that is gone
			folder, err := os.MkdirTemp("", "gone")
			if err != nil {
				panic(err)
			}
			s.Do("CONFIG", "SET", "dir", folder)
			_ = os.RemoveAll(folder)
			s.Do("CONFIG", "SET", "save", "3600 1")
			s.Do("SET", "x", "1")
			s.Do("BGSAVE")
			for !strings.Contains(s.Do("INFO", "persistence"), "rdb_last_bgsave_status:err") {
				time.Sleep(time.Millisecond)
			}
		},
		well: func(s *redistest.Server) { s.Do("CONFIG", "SET", "save", "") }},
	{name: "NOREPLICAS", reason: redisstore.Unsaved, says: "min-replicas-to-write",
		ill:  func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
		well: func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") }},
	{name: "NOAUTH", reason: redisstore.Denied, says: "(NOAUTH)",
		ill: func(s *redistest.Server) {
			s.Do("CONFIG", "SET", "requirepass", "x")
			s.Do("CLIENT", "KILL", "SKIPME", "yes")
		},
		well: func(s *redistest.Server) { s.Do("CONFIG", "SET", "requirepass", "") }},
	{name: "WRONGPASS", reason: redisstore.Denied, says: "(WRONGPASS)",
		url: func(s *redistest.Server) string {
			s.Do("ACL", "SETUSER", "gate", "on", ">before", "~*", "+@all")
			return "redis://gate:before@" + s.Addr
		},
		ill: func(s *redistest.Server) {
			s.Do("ACL", "SETUSER", "gate", "<before", ">after")
			s.Do("CLIENT", "KILL", "SKIPME", "yes")
		},
		well: func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", ">before") }},
	{name: "a user who may not run scripts", reason: redisstore.Denied, says: "(NOPERM)", url: asGate,
		ill:  func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", "-evalsha") },
		well: func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", "+evalsha") }},
	{name: "a user who may not load scripts", reason: redisstore.Denied, says: "(NOPERM)", url: asGate,
		ill: func(s *redistest.Server) {
			s.Do("ACL", "SETUSER", "gate", "-script|load")
			s.Do("SCRIPT", "FLUSH")
		},
		well: func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", "+script|load") }},
	{name: "a user who may not do what a script does", reason: redisstore.Denied, says: "denied", url: asGate,
		ill:  func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", "-mget") },
		well: func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", "+mget") }},
	{name: "a user who may not write these keys", reason: redisstore.Denied, says: "denied", url: asGate,
		ill:  func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", "resetkeys", "~other:*") },
		well: func(s *redistest.Server) { s.Do("ACL", "SETUSER", "gate", "~agw2:*") }},
	{name: "BUSY", reason: redisstore.Busy, says: "SCRIPT KILL", args: []string{"--busy-reply-threshold", "1"},
		ill: func(s *redistest.Server) {
			c := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: -1, MaxRetries: -1})
			go func() {
				defer c.Close()
				_ = c.Eval(context.Background(), "while true do end", nil).Err()
			}()
			for !strings.HasPrefix(s.Do("GET", "x"), "-BUSY") {
				time.Sleep(time.Millisecond)
			}
		},
		well: func(s *redistest.Server) { s.Do("SCRIPT", "KILL") }},
	{name: "LOADING", reason: redisstore.Loading, says: "loading its data", args: []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"},
		ill: func(s *redistest.Server) { // two seconds a thousand keys
			s.Do("DEBUG", "POPULATE", "100000")
			s.Do("SAVE")
			s.Stop()
			s.Again("--key-load-delay", "2000")
		},
		well: func(s *redistest.Server) { s.Do("CONFIG", "SET", "key-load-delay", "0") }},
	{name: "CLUSTERDOWN", reason: redisstore.Down, says: "CLUSTER INFO", args: []string{"--cluster-enabled", "yes"},
		url: func(s *redistest.Server) string {
			s.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			for !strings.Contains(s.Do("CLUSTER", "INFO"), "cluster_state:ok") {
				time.Sleep(time.Millisecond)
			}
			return "redis+cluster://" + s.Addr
		},
		ill: func(s *redistest.Server) { s.Do("CLUSTER", "DELSLOTSRANGE", "0", "16383") },
		well: func(s *redistest.Server) {
			s.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
		}},
}

// asGate is the server for a user who has the rights that docs/fleet.md lists, and no others.
func asGate(s *redistest.Server) string {
	s.Do(append([]string{"ACL", "SETUSER", "gate", "on", ">x"}, strings.Fields(rights)...)...)
	return "redis://gate:x@" + s.Addr
}

const rights = "~agw2:* &agw2:bell:* -@all +evalsha +script|load +time +get +mget +set +setrange +pexpire +zadd +zcard +zcount +zrangebyscore +zrem +zremrangebyscore +zscore +publish +subscribe +ping +hello +select"

// TestTheRightsAreEnoughToHear: that a slot is to be had is told and heard with them, too.
// What scripts do besides is in TestEveryCause.
func TestTheRightsAreEnoughToHear(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	asGate(server)
	for _, command := range []string{"SUBSCRIBE " + ratelimit.Bell("x"), "PUBLISH " + ratelimit.Bell("x") + " set", "PING"} {
		if says := server.Do(append([]string{"ACL", "DRYRUN", "gate"}, strings.Fields(command)...)...); says != "+OK" {
			t.Errorf("%s: %s", command, says)
		}
	}
}

// TestEveryCause: whatever a server says, decisions go by the failure policy and by nothing
// else, are counted by that cause, and the log is told of it in words with what to do; and
// when it is well it decides again, with nobody doing anything.
func TestEveryCause(t *testing.T) {
	t.Parallel()
	for _, c := range causesOfServers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, c.args...)
			url := server.URL()
			if c.url != nil {
				url = c.url(server)
			}
			r := newReal(t, url, long, ratelimit.PolicyClosed)
			r.warm(t)
			ticket, outcome := r.admit("before", 1)
			if outcome != ratelimit.Admitted {
				t.Fatal(outcome, r.counts(), r.modes)
			}
			c.ill(server)
			r.failures(t)
			r.says(t, c.says)
			eventually(t, "it is counted", func() bool { return r.store.Failures()[c.reason] > 0 })
			ticket.Release()
			c.well(server)
			r.back(t)
			eventually(t, "what was told meanwhile is done", func() bool {
				ticket, outcome := r.admit("before", 1)
				defer ticket.Release()
				return outcome == ratelimit.Admitted
			})
		})
	}
}

// TestCausesOfAStart: what is wrong from the first connection on is told before anything
// was asked for, in words and without the password, and nothing counts as shared.
func TestCausesOfAStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = web.Close() })
	go func() { _ = http.Serve(web, http.NotFoundHandler()) }()
	alone := redistest.Start(t, "--cluster-enabled", "yes")
	scriptless := redistest.Start(t, "--rename-command", "EVALSHA", "")
	for name, c := range map[string]struct {
		url    string
		reason redisstore.Reason
		says   string
	}{
		"nobody there":          {"redis://:s3cr3t@127.0.0.1:1", redisstore.Network, "is it up"},
		"wrong password":        {"redis://:s3cr3t@" + server.Addr, redisstore.Denied, "(WRONGPASS)"},
		"no password":           {"redis://" + server.Addr, redisstore.Denied, "(NOAUTH)"},
		"no such user":          {"redis://nobody:s3cr3t@" + server.Addr, redisstore.Denied, "(WRONGPASS)"},
		"no such database":      {"redis://:right@" + server.Addr + "/99", redisstore.Database, "no database of that number"},
		"a database of Cluster": {"redis://" + alone.Addr + "/2", redisstore.Database, "a Cluster has but 0"},
		"a node of a Cluster":   {"redis://" + alone.Addr, redisstore.Down, "CLUSTER INFO"},
		"a Cluster of nothing":  {"redis+cluster://" + alone.Addr, redisstore.Down, "CLUSTER INFO"},
		"a Cluster that is one": {"redis+cluster://:right@" + server.Addr, redisstore.Other, ""},
		"a web server":          {"redis://" + web.Addr().String(), redisstore.Foreign, "correct the address"},
		"no scripts":            {scriptless.URL(), redisstore.Foreign, "runs no scripts"},
		"TLS to a web server":   {"rediss://" + web.Addr().String(), redisstore.TLS, "TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReal(t, c.url, long, ratelimit.PolicyClosed)
			r.says(t, c.says)
			if !r.store.Away() || r.store.Failures()[c.reason] == 0 {
				t.Errorf("away %v, failed for %v; want %s", r.store.Away(), r.counts(), c.reason)
			}
			for range 10 {
				if _, outcome := r.admit("t", 1); outcome != ratelimit.Unavailable {
					t.Error(outcome)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if text := fmt.Sprint(r.modes); strings.Contains(text, "s3cr3t") || slices.Contains(r.modes, nil) {
				t.Error(text)
			}
		})
	}
}

// counts are the failures, but for what there were none of.
func (r *real) counts() map[redisstore.Reason]int64 {
	all := r.store.Failures()
	maps.DeleteFunc(all, func(_ redisstore.Reason, n int64) bool { return n == 0 })
	return all
}

// TestTheDocsSayEveryReason, and the rights of a user as they are under test.
func TestTheDocsSayEveryReason(t *testing.T) {
	page, err := os.ReadFile("../../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), " "+rights+"\n") {
		t.Error("docs/fleet.md has other rights")
	}
	r := newReal(t, "redis://127.0.0.1:1", long, ratelimit.PolicyClosed)
	for reason := range r.store.Failures() {
		if !strings.Contains(string(page), fmt.Sprintf("\n| `%s`", reason)) || reason.Words() == "" {
			t.Errorf("docs/fleet.md has no row of %s, or nothing is said of it: %q", reason, reason.Words())
		}
	}
}

// TestAnAddressThatLeadsElsewhere: the name of who is master leads to another server after a
// failover, while the old one stays, answers, and takes no writes: its connection is given up.
func TestAnAddressThatLeadsElsewhere(t *testing.T) {
	t.Parallel()
	old, other := redistest.Start(t), redistest.Start(t)
	link := redistest.Between(t, old)
	r := newReal(t, link.URL(), long, ratelimit.PolicyClosed)
	r.warm(t)
	old.Do("REPLICAOF", "127.0.0.1", "1")
	r.failures(t)
	r.says(t, "(READONLY)")
	link.Lead(other)
	r.back(t)
	ticket, outcome := r.admit("t", 1)
	defer ticket.Release()
	if n := other.Do("ZCARD", "agw2:{registered:4:t}:slots"); outcome != ratelimit.Admitted || n != ":1" {
		t.Errorf("%v, and the other server knows of %s slots", outcome, n)
	}
}
