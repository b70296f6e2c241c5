-- Has a replica be one of those that live, or, with no time to live, no longer.
--
-- KEYS   the replicas
-- ARGV   for how long; the id
-- reply  the time; how many live
local key, id, lease = KEYS[first + 1], textArg(), args(1)
if lease > 0 then
	needsRoom()
	hold(key, lease, id)
else
	call('ZREM', key, id)
end
return pack('<dd', now, used(key))
