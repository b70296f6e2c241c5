package config

import "slices"

// readByCalls are the settings that each call reads, and that a changed
// registry file therefore changes while the gateway runs. The others are read
// once, when it starts.
var readByCalls = []string{
	"RATE_KEY_RPS", "RATE_KEY_BURST", "RATE_TENANT_RPS", "RATE_TENANT_BURST", "TENANT_MAX_INFLIGHT",
	"MAX_INFLIGHT", "TENANT_QUEUE", "TENANT_QUEUE_WAIT", "KEY_MAX_PRINCIPALS", "RATE_AUTH_PER_MINUTE", "TRUSTED_PROXIES", "RECEIPT_INTENT", "RECEIPT_ON_FAILURE",
	"PUBLIC_URL", "MAX_REQUEST_BODY", "STREAM_IDLE", "STREAM_MAX", "CLIENT_STALL",
}

// OnlyAtStart names the variables of the settings that are others in next, and
// that only a start reads.
func (s *Settings) OnlyAtStart(next *Settings) []string {
	var names []string
	for _, r := range rows {
		v := r.variable()
		if s.texts[v] != next.texts[v] && !slices.Contains(readByCalls, r.name) {
			names = append(names, v)
		}
	}
	return names
}

// InForce returns every setting, in the order of Table, as it is in force in a
// process that was started with the settings started and has taken over s since.
func (s *Settings) InForce(started *Settings) []Value {
	values, before := s.Values(), started.Values()
	changed := started.OnlyAtStart(s)
	for i, v := range values {
		if slices.Contains(changed, v.Name) {
			values[i] = before[i]
			values[i].AfterRestart = v.Text
		}
	}
	return values
}
