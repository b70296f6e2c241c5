-- Ends leases. To do it again changes nothing.
--
-- KEYS   sets of leases
-- ARGV   the id
-- reply  the time
local id = textArg()
for _, key in ipairs(KEYS) do
	redis.call('ZREM', key, id)
end
return {now}
