-- Says of a replica since when the first of its calls waits for a lease of a set, or that
-- none does any more; and tells whose turn it is, if there is a lease to be had.
--
-- KEYS   the set of leases
-- ARGV   how many there may be, 0 for any number; for how long the first waits, -1 if none
--        does; the replica
-- reply  the time; whether there is one for it; how many other replicas wait
local key, own, most, age = KEYS[first + 1], textArg(), args(2)
call('ZREMRANGEBYSCORE', key, '-inf', (written(0)))
local w = waiting(key, own, 0)
if age >= 0 then
	needsRoom()
	stand(key, w, own, now - age)
elseif w.place then
	call('ZREM', key, w.place)
end
w = waiting(key, own, now - age)
if w.members == 1 then
	call('ZREM', key, bell)
end
local free = most - call('ZCARD', key) + w.members
if most == 0 then
	free = w.before + 1
end
if free > 0 and w.first then
	ring(key, w.first)
end
return pack('<ddd', now, free > w.before and 1 or 0, w.others)
