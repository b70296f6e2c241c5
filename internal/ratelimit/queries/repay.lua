-- Takes back what was lent and did not flow, unless another window has begun since.
--
-- KEYS   the caller's window
-- ARGV   its length; how much; when the window began that it was counted in
-- reply  the time
local length, n, began = args(3)
local key = KEYS[first + 1]
local stored = call('GET', key)
if stored and #stored == 16 then
	local at, used = unpack('<dd', stored)
	local left = at + length - now
	if at == began and left > 0 then
		call('SET', key, pack('<dd', at, max(0, used - n)), 'PX', format('%d', floor(left / 1000) + 1001))
	end
end
return pack('<d', now)
