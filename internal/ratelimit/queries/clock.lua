-- The time, in microseconds, is the store's alone: replicas have clocks of their own.
-- What comes after its deadline does nothing, as whoever sent it has gone on without.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if tonumber(ARGV[1]) > 0 and now > tonumber(ARGV[1]) then
	return {-now}
end
