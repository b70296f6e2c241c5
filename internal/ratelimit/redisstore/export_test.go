package redisstore

import (
	"crypto/sha1"
	"encoding/hex"

	"agentgw/internal/ratelimit"
)

// ClockName is the key that a server has its time from, in microseconds, for a Store
// that was told to have TestingOnlyClock.
const ClockName = "test:now"

// A server's clock cannot be set, and keys go by it. What stands here before a script has it see
// a clock that can, and keeps keys for good: a script must not rely on it that a key is gone.
const testingOnlyClock = `local real = redis
local redis = {call = function(name, ...)
	if name == 'TIME' then
		return {0, real.call('GET', 'test:now')}
	elseif name == 'PEXPIRE' then
		return 1
	elseif name == 'SET' then
		local key, value = ...
		return real.call('SET', key, value)
	end
	return real.call(name, ...)
end}
`

// TestingOnlyClock has scripts go by ClockName. It must come before all else.
func (s *Store) TestingOnlyClock() {
	known := map[*ratelimit.Script]*ratelimit.Script{}
	for _, of := range ratelimit.Scripts() {
		text := testingOnlyClock + of.Text
		sum := sha1.Sum([]byte(text))
		known[of] = &ratelimit.Script{Name: of.Name, Text: text, SHA1: hex.EncodeToString(sum[:])}
	}
	s.testingOnlyScript = func(of *ratelimit.Script) *ratelimit.Script { return known[of] }
}
