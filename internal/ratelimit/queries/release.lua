-- Ends leases, and tells of each that is to be had now who waits for it. To do it again
-- changes nothing.
--
-- KEYS   sets of leases
-- ARGV   the id
-- reply  the time
local id = textArg()
for i = first + 1, first + names do
	local key = KEYS[i]
	if call('ZREM', key, id, bell) == 2 then
		local w = waiting(key, nil, 0)
		if w.first then
			call('ZADD', key, '+inf', bell)
			ring(key, w.first)
		end
	end
end
return pack('<d', now)
