-- Renews leases, also those that the store has lost: the calls run all the same.
--
-- KEYS   a set of leases
-- ARGV   for how long; the ids
-- reply  the time; how many the store had lost
needsRoom()
local key, lost, lease = KEYS[first + 1], 0, args(1)
for id in textArg do
	if not call('ZSCORE', key, id) then
		lost = lost + 1
	end
	hold(key, lease, id)
end
return pack('<dd', now, lost)
