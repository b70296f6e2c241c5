-- count reads what a rule has counted in the window of now. A window that is over is
-- none, and one that began before the clock was set back goes on, so that nobody gets
-- two at once.
local function window(key, length)
	local stored = call('GET', key)
	local w = {key = key, length = length, at = quotient(now, length), used = 0}
	if stored and #stored == 16 then
		local at, n = unpack('<dd', stored)
		if at >= w.at then
			w.at, w.used = at, n
		end
	end
	w.left = (w.at + 1) * length - now
	return w
end

-- add counts n more, or less, and in the same step says when that is over: nothing can
-- come between, and what was left without an end has one again.
local function add(w, n)
	w.used = min(2 ^ 52, max(0, w.used + n))
	call('SET', w.key, pack('<dd', w.at, w.used), 'PX', format('%d', floor(w.left / 1000) + 1001))
end
