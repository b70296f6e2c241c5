-- Renews leases, also those that the store has lost: the calls run all the same.
--
-- KEYS   a set of leases
-- ARGV   the deadline; for how long; the ids
-- reply  the time; how many the store had lost; how many there are now
local lease, lost = arg(), 0
for i = 3, #ARGV do
	if not redis.call('ZSCORE', KEYS[1], ARGV[i]) then
		lost = lost + 1
	end
	hold(KEYS[1], lease, ARGV[i])
end
return {now, lost, used(KEYS[1])}
