package redisstore

import "sync/atomic"

// Reason is why the store did not decide.
type Reason string

// The reasons. What Redis says is told by its first word, and by nothing of the rest:
// that may hold a key.
const (
	Away       Reason = "away"        // it counts as away, and was not asked
	Timeout    Reason = "timeout"     // no answer in time
	Late       Reason = "late"        // it came to the job after its deadline, and did nothing
	Overloaded Reason = "overloaded"  // more jobs wait than may
	Network    Reason = "network"     // no connection, or a broken one
	ReadOnly   Reason = "readonly"    // a replica, as after a failover
	Loading    Reason = "loading"     // it reads its data
	Busy       Reason = "busy"        // a script of somebody else runs, and nothing besides
	Memory     Reason = "oom"         // it may keep no more
	Unsaved    Reason = "misconf"     // it takes no writes, as it cannot save or replicate them
	Moved      Reason = "moved"       // a node of a Cluster that has not got the key, or not all of it
	Down       Reason = "clusterdown" // a Cluster of which too much is away
	Unnamed    Reason = "nomaster"    // Sentinels that know no master of that name
	TLS        Reason = "tls"         // a certificate, or one of both sides that speaks no TLS
	Denied     Reason = "denied"      // wrong password, or no right to a command or key
	Database   Reason = "database"    // it has none of that number
	Foreign    Reason = "foreign"     // what answers is not Redis, or one that runs no scripts
	Script     Reason = "script"      // a script failed, as on a key of another type
	Other      Reason = "other"
)

// causes are the reasons, and of each what an operator is told: what it is, and what there
// is to do.
var causes = []struct {
	Reason
	words string
	// lasting: it is so until somebody mends it, or another server takes over. One such
	// failure says that of the next ones.
	lasting bool
}{
	{Away, "Redis is not asked before it has answered a probe", false},
	{Timeout, "Redis does not answer in time: is it overloaded, far away, or hanging? A decision waits AGENTGATE_REDIS_TIMEOUT", false},
	{Late, "Redis came to the decision after its deadline: is it overloaded?", false},
	{Overloaded, "more decisions wait for Redis than may: is it overloaded?", false},
	{Network, "there is no connection to Redis, or it breaks: is it up, and the address right? A port with TLS needs rediss://", false},
	{ReadOnly, "Redis is a replica, which takes no writes: name the master in the URL, or the Sentinels that know it (redis+sentinel://)", true},
	{Loading, "Redis is loading its data, and answers when it has", false},
	{Busy, "Redis runs somebody else's script, and nothing besides: give the gateways a Redis of their own, or end that with SCRIPT KILL", false},
	{Memory, "Redis may keep no more: raise its maxmemory, or give the gateways a Redis of their own", false},
	{Unsaved, "Redis takes no writes, as it cannot save them to disk or has too few replicas: mend that, or turn off stop-writes-on-bgsave-error or min-replicas-to-write; the limits need neither", false},
	{Moved, "what answers is a node of a Cluster, which has a part of the keys: the URL of a Cluster begins with redis+cluster:// (or rediss+cluster://)", true},
	{Down, "the Redis Cluster is down, or has no node for some of its slots: see CLUSTER INFO", false},
	{Unnamed, "the Sentinels know no master of that name: it is that of their `sentinel monitor`, and stands behind the hosts in the URL", true},
	{TLS, "no TLS comes about", true},
	{Denied, "Redis refuses the user or the password, or the user may not do all that it takes: correct them in the URL or in Redis' ACL (docs/fleet.md lists the rights)", true},
	{Database, "Redis has no database of that number: correct the end of the URL; a Cluster has but 0", true},
	{Foreign, "what answers there does not speak as Redis 7 and Valkey do, or runs no scripts: correct the address", true},
	{Script, "a script failed: does something else write to keys that begin with agw2: ?", false},
	{Other, "Redis says what it should not: see its log", false},
}

// place is that of a reason among the causes.
func (of Reason) place() int {
	for i := range causes {
		if causes[i].Reason == of {
			return i
		}
	}
	return len(causes) - 1
}

// Words say what it is, and what there is to do about it, to an operator.
func (of Reason) Words() string { return causes[of.place()].words }

// reasons counts decisions that the store did not make.
type reasons struct{ n [32]atomic.Int64 }

func (r *reasons) count(of Reason) { r.n[of.place()].Add(1) }

// Failures yields how many decisions the store did not make, and how many things that it
// was told of failed, by why.
func (s *Store) Failures() map[Reason]int64 {
	all := make(map[Reason]int64, len(causes))
	for i := range causes {
		all[causes[i].Reason] = s.byReason.n[i].Load()
	}
	return all
}
