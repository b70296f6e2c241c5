package redisstore

import (
	"fmt"
	"strings"
)

// ClockName is the key that a server has its time from, in microseconds, for a Store
// that was told to have TestingOnlyClock.
const ClockName = "test:now"

// ClockNames are the same of the nodes of a Cluster, each of which has one of them.
func ClockNames() []string {
	var names []string
	for third := range 3 {
		for i := 0; ; i++ {
			name := fmt.Sprintf("{%d}:now", i)
			if slotOf(name)/5462 == third {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// A server's clock cannot be set, and keys go by it. What stands here before the program has it see
// a clock that can, and keeps keys for good: a script must not rely on it that a key is gone.
const testingOnlyClock = `local real = redis
local redis = {pcall = real.pcall, call = function(name, ...)
	if name == 'TIME' then
		for _, name in ipairs({CLOCKS}) do
			local at = real.pcall('GET', name) -- of another node's name it is an error
			if type(at) == 'string' then
				return {0, at}
			end
		end
		return real.call(name, ...)
	elseif name == 'PEXPIRE' and select(2, ...) ~= '0' then
		return 1
	elseif name == 'SET' then
		local key, value = ...
		return real.call('SET', key, value)
	end
	return real.call(name, ...)
end}
`

// TestingOnlyClock has the scripts of a Store go by ClockName.
func TestingOnlyClock(o *Options) {
	clocks := "'" + strings.Join(append([]string{ClockName}, ClockNames()...), "', '") + "'"
	o.before = strings.Replace(testingOnlyClock, "CLOCKS", clocks, 1)
}

// A stand-in for Redis has not all that Lua has there: this does with doubles that are
// integers what struct does. And it makes a key where Redis only looks whether there is room for one.
const testingOnlyStruct = `local real = redis
local redis = {pcall = function() end, call = real.call}
local struct = {
	pack = function(form, ...)
		local out = {}
		for _, n in ipairs({...}) do
			local low, high = 0, 0
			if n ~= 0 then
				local part, exponent = math.frexp(math.abs(n))
				part = (2 * part - 1) * 2 ^ 52
				low = part % 2 ^ 32
				high = (part - low) / 2 ^ 32 + (exponent + 1022) * 2 ^ 20
				if n < 0 then
					high = high + 2 ^ 31
				end
			end
			for _, half in ipairs({low, high}) do
				for _ = 1, 4 do
					out[#out + 1] = string.char(half % 256)
					half = math.floor(half / 256)
				end
			end
		end
		return table.concat(out)
	end,
	unpack = function(form, from, at)
		local out = {}
		at = at or 1
		for i = at, at + 8 * (#form - 2), 8 do
			local half = {}
			for h = 0, 1 do
				local a, b, c, d = string.byte(from, i + 4 * h, i + 4 * h + 3)
				half[h] = a + b * 2 ^ 8 + c * 2 ^ 16 + d * 2 ^ 24
			end
			local n, high = 0, half[1] % 2 ^ 31
			if high > 0 then
				n = (1 + (high % 2 ^ 20 * 2 ^ 32 + half[0]) / 2 ^ 52) * 2 ^ (math.floor(high / 2 ^ 20) - 1023)
			end
			if half[1] >= 2 ^ 31 then
				n = -n
			end
			out[#out + 1] = n
		end
		out[#out + 1] = at + 8 * (#form - 1)
		return unpack(out)
	end,
}
`

// TestingOnlyStruct is for a server that has no struct.
func TestingOnlyStruct(o *Options) { o.before = testingOnlyStruct }
