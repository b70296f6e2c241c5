package delegation

import "time"

// Revocations are what was taken back. They never change while in use. The zero value
// is nothing.
type Revocations struct {
	// IDs are tokens, by jti: every chain that one stands in is over.
	IDs map[string]bool
	// Agents and Users are those whose chains are over if their root was issued at
	// that time or before. It is the root's time that counts: the gateway signed it,
	// and whoever holds a key could date a link of his own as he likes.
	Agents, Users map[string]time.Time
	// Gone are agents that are no more, whenever a chain was issued.
	Gone map[string]bool
	// Known reports whether there is an agent of that name. Every chain with one that
	// there is not is over, as what it handed on has to go with it. nil: who is named is.
	Known func(agent string) bool
}

// Has reports whether something of the chain was revoked. Names are without prefix.
func (r *Revocations) Has(c *Chain) bool {
	before := func(at time.Time, ok bool) bool { return ok && !c.Issued.After(at) }
	if at, ok := r.Users[trim(c.User, userPrefix)]; before(at, ok) {
		return true
	}
	for _, l := range c.Links {
		agent := trim(l.Agent, agentPrefix)
		if at, ok := r.Agents[agent]; before(at, ok) || r.IDs[l.ID] || r.Gone[agent] || r.Known != nil && !r.Known(agent) {
			return true
		}
	}
	return false
}

func trim(s, prefix string) string { return s[min(len(s), len(prefix)):] }
