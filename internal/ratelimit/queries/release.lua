-- Ends leases. To do it again changes nothing.
--
-- KEYS   sets of leases
-- ARGV   the id
-- reply  the time
local id = textArg()
for i = first + 1, first + names do
	call('ZREM', KEYS[i], id)
end
return pack('<d', now)
