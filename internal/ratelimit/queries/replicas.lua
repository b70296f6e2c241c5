-- Has a replica be one of those that live, or, with no time to live, no longer.
--
-- KEYS   the replicas
-- ARGV   for how long; the id
-- reply  the time; how many live
local lease, id = arg(), textArg()
if lease > 0 then
	needsRoom()
	hold(KEYS[1], lease, id)
else
	redis.call('ZREM', KEYS[1], id)
end
return {now, used(KEYS[1])}
