-- Renews leases, also those that the store has lost: the calls run all the same.
--
-- KEYS   a set of leases
-- ARGV   for how long; the ids
-- reply  the time; how many the store had lost; how many there are now
needsRoom()
local lease, lost = arg(), 0
for id in textArg do
	if not redis.call('ZSCORE', KEYS[1], id) then
		lost = lost + 1
	end
	hold(KEYS[1], lease, id)
end
return {now, lost, used(KEYS[1])}
