// Package ratelimit decides whether a call may run: it keeps token buckets and
// slots for partition keys and answers with a Verdict. It knows names, tokens,
// slots and time, and nothing of HTTP or of who stands behind a name.
//
// # What it promises
//
//   - In any window [s, e] one bucket admits at most burst + (e-s)/interval
//     calls, whatever the order in which times are passed in.
//   - In any of its windows a rule admits calls that count for no more than its
//     maximum together. [Local.Count] alone goes past it.
//   - A refusal takes nothing from any bucket or rule and no slot. [Local.Admit]
//     takes a token of the tenant, one of the (key, service) bucket, what the call
//     counts for in each rule and every slot, or none of them.
//   - A refusal for want of a slot also gives the key's token back, until ten
//     times the key's rate and burst of such refusals have been free.
//   - A slot is given back exactly once, however often and from however many
//     goroutines its [Ticket] is released.
//   - A call may wait for its slots ([Local.Enter]), and pays its tokens once. After
//     every change nobody is left waiting who could run. Within a tenant the first
//     that came is first, except that who waits for a full service holds up none that
//     waits for another; between tenants the time of the slots of a service and of
//     the process is shared by weight, each pool by itself; and who comes overtakes
//     nobody who could use the same slot.
//     Who leaves gives back all that it took.
//   - A refusal's wait is true: were nobody else calling, the same call made
//     that much later is admitted, and one nanosecond earlier it is not. A slot
//     has no such time; its wait is an estimate between 1 and 10 s.
//   - Memory is bounded. What is forgotten to make room is only what would
//     decide the same if it were made anew. When nothing may go, newcomers share
//     an overflow entry with those of the same limit: together they get what one
//     of them may have, and each keeps its own cap of slots. Coming and going
//     between that and an entry of its own gains nobody a token or a slot.
//
// # What it does not promise
//
// A rule's windows are those of the Unix time that the limiter began with and of its
// clock since, which does not step when the host's is set. State lives in one process and is gone with it; a replica knows nothing of
// another. Admissions are not fair between the partition keys that share an
// overflow entry. When limits change meanwhile, those who share one under the new
// limit also pay for what those who come to it owed under theirs; and a limit that
// was off in between is new.
//
// # The bucket
//
// A bucket is one number, the theoretical arrival time (TAT) of the generic cell
// rate algorithm (ITU-T I.371): the instant at which it will be full again. A
// token costs one interval. A bucket of burst b and interval T is drained when
// the TAT lies b*T ahead of now, and full when the TAT is not ahead at all:
//
//	now ----|<- tokens left ->|<----- owed ----->|
//	        now+b*T-(tat-now)                   tat     (drawn for b*T = whole)
//
// All times are int64 nanoseconds since one monotonic origin (see [Clock]) and
// are arguments: the package starts no timer and no goroutine of its own, but
// for the runtime's clean-up of tickets that were lost.
package ratelimit
