-- Counts bytes of a caller that are about to flow through a replica's tunnels, some ahead of
-- those that are, so that not each piece needs to ask. A window begins with its first byte.
-- What is lent at once is a quarter of what is left at most: so little is where nobody uses it
-- when others have used up the rest. What is wanted passes whole if anything was left.
--
-- KEYS   the caller's window
-- ARGV   its length; the limit; what is wanted, 0 only reads; whether nothing passes beyond
--        the limit; what may be lent at once
-- reply  the time; what is lent; what is counted with it; what is left of the window, 0 if
--        none has begun; when it began
local length, limit, want, cut, chunk = args(5)
local key = KEYS[first + 1]
local stored, began, used = call('GET', key), now, 0
if stored and #stored == 16 then
	local at, n = unpack('<dd', stored)
	if n > 0 and now - at < length then
		began, used = at, n
	end
end
local left, granted = limit - used, 0
if want > 0 and (left > 0 or cut == 0) then
	needsRoom()
	if left > 0 then
		chunk = min(chunk, quotient(left, 4))
	end
	granted = max(want, chunk)
	used = min(2 ^ 52, used + granted)
	call('SET', key, pack('<dd', began, used), 'PX', format('%d', floor((began + length - now) / 1000) + 1001))
end
local ends = 0
if used > 0 then
	ends = began + length - now
end
return pack(forms[5], now, granted, used, ends, began)
