-- count reads what a rule has counted in the window of now. A window that is over is
-- none, and one that began before the clock was set back goes on, so that nobody gets
-- two at once.
local function window(key, length)
	local stored = redis.call('HMGET', key, 'at', 'n')
	local w = {key = key, length = length, at = quotient(now, length), used = 0}
	if stored[1] and tonumber(stored[1]) >= w.at then
		w.at, w.used = tonumber(stored[1]), tonumber(stored[2])
	end
	w.left = (w.at + 1) * length - now
	return w
end

-- add counts n more, or less, and in the same step says when that is over: nothing can
-- come between, and what was left without an end has one again.
local function add(w, n)
	w.used = min(2 ^ 52, max(0, w.used + n))
	redis.call('HSET', w.key, 'at', string.format('%.0f', w.at), 'n', string.format('%.0f', w.used))
	redis.call('PEXPIRE', w.key, string.format('%.0f', floor(w.left / 1000) + 1001))
end
