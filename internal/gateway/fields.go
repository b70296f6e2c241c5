package gateway

import (
	"strconv"

	"agentgw/internal/ratelimit"
)

// The RateLimit fields (draft-ietf-httpapi-ratelimit-headers), spelled as
// net/http keeps names: any other spelling costs an allocation at each use.
const (
	policyField = "Ratelimit-Policy"
	stateField  = "Ratelimit"
)

// tell sets the RateLimit fields from the decision itself, never from a second
// look. A later step adds its limits to those that an earlier one reached. Both
// values are cut from one string, which is most of what telling costs.
func tell(out *answer, v ratelimit.Verdict, uses []ratelimit.Use) {
	var room [2][384]byte // for every limit but rules; more would only cost an allocation
	policies, states := room[0][:0], room[1][:0]
	h := out.Header()
	// A refusal at admission reads the key again, after the refund: its word
	// stands instead of the earlier one.
	told := len(h[policyField]) == 1 && !reads(v, ratelimit.KindKey)
	if told {
		policies, states = append(policies, h[policyField][0]...), append(states, h[stateField][0]...)
	}
	for r := range v.Readings() {
		policies, states = appendPolicy(policies, r), appendState(states, r)
	}
	for i := range uses { // what only observes is not the agent's business
		if r := uses[i].Reading(); r.Kind != 0 && !uses[i].Rule.Observes() {
			policies, states = appendPolicy(policies, r), appendState(states, r)
		}
	}
	if len(policies) == 0 {
		return
	}
	n := len(policies)
	both := string(append(policies, states...))
	if told {
		h[policyField][0], h[stateField][0] = both[:n], both[n:]
		return
	}
	values := []string{both[:n], both[n:]}
	h[policyField], h[stateField] = values[:1:1], values[1:]
}

// tellReading adds one limit to the RateLimit fields, which have the key's by now.
func tellReading(out *answer, r ratelimit.Reading) {
	h := out.Header()
	if len(h[policyField]) == 1 {
		h[policyField] = []string{string(appendPolicy([]byte(h[policyField][0]), r))}
		h[stateField] = []string{string(appendState([]byte(h[stateField][0]), r))}
		return
	}
	h[policyField], h[stateField] = []string{string(appendPolicy(nil, r))}, []string{string(appendState(nil, r))}
}

func reads(v ratelimit.Verdict, kind ratelimit.Kind) bool {
	for r := range v.Readings() {
		if r.Kind == kind {
			return true
		}
	}
	return false
}

func appendPolicy(b []byte, r ratelimit.Reading) []byte {
	b = strconv.AppendInt(append(appendName(b, r), ";q="...), r.Quota, 10)
	if r.Gauge {
		return append(b, `;qu="concurrent-requests"`...)
	}
	return strconv.AppendInt(append(b, ";w="...), max(1, seconds(r.Window)), 10)
}

func appendState(b []byte, r ratelimit.Reading) []byte {
	b = strconv.AppendInt(append(appendName(b, r), ";r="...), r.Remaining, 10)
	if r.Gauge || r.Next <= 0 {
		return b // a count of slots has no time at which it is full again
	}
	return strconv.AppendInt(append(b, ";t="...), seconds(r.Next), 10)
}

// appendName begins the member of a limit.
func appendName(b []byte, r ratelimit.Reading) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	name := r.Name
	if name == "" {
		name = policy(r.Kind)
	}
	return append(append(append(b, '"'), name...), '"')
}
