-- Has a replica be one of those that live, or, with no time to live, no longer.
--
-- KEYS   the replicas
-- ARGV   the deadline; for how long; the id
-- reply  the time; how many live
local lease = arg()
if lease > 0 then
	hold(KEYS[1], lease, ARGV[3])
else
	redis.call('ZREM', KEYS[1], ARGV[3])
end
return {now, used(KEYS[1])}
