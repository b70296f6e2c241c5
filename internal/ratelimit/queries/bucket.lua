-- Numbers are integers below 2^53, which Lua keeps exactly. They become text by digits
-- alone: tostring would round them to 14 digits.
local floor, min, max = math.floor, math.min, math.max

local function quotient(a, b)
	return (a - a % b) / b
end

-- scale is floor(a * b / c). The product may pass 2^53: then it is made bit by bit.
local function scale(a, b, c)
	local whole, rest = quotient(a, c) * b, a % c
	if rest * b < 9007199254740992 then
		return whole + quotient(rest * b, c)
	end
	local q, r, bit = 0, 0, 2 ^ 50
	while bit >= 1 do
		q, r = 2 * q, 2 * r
		if floor(b / bit) % 2 == 1 then
			r = r + rest
		end
		while r >= c do
			q, r = q + 1, r - c
		end
		bit = bit / 2
	end
	return whole + q
end

-- open reads a bucket as it is now under a limit that has been in force for age, or, if
-- that is negative, since it is asked for. An interval of 0 is no limit, and a negative
-- one whichever the bucket is under. A bucket is one number, tat: when it is full
-- again. See Go's bucket, which it follows step by step.
local function open(key, interval, burst, age)
	local b = {
		key = key, interval = interval, burst = burst, window = interval * burst,
		tat = 0, seen = 0, refunded = 0, changes = 0, gifts = '', wait = 0,
	}
	if interval == 0 then
		b.off = true
		return b
	end
	local tat, seen, was, many, refunded, changes, gifts =
		string.match(redis.call('GET', key) or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
	if interval < 0 and not tat then
		b.off = true -- it is full
		return b
	end
	if tat then
		tat, seen, was, many = tonumber(tat), tonumber(seen), tonumber(was), tonumber(many)
		if interval < 0 then
			interval, burst = was, many
			b.interval, b.burst, b.window = was, many, was * many
		end
		b.refunded, b.changes, b.gifts = tonumber(refunded), tonumber(changes), gifts
		local window = was * many
		-- The store's clock may have been set back: nobody is to wait for it to catch up.
		if tat > now + window + 1000000 then
			tat, b.changed = now + window, true -- also by a refusal: it would begin anew with each
		end
		seen = min(seen, now + 1000000)
		if was ~= interval or many ~= burst then
			local turn = now
			if age >= 0 then
				turn = now - age
			end
			turn = max(seen, min(turn, now))
			if tat > turn or turn - seen < window then
				local left = min(window, max(0, window - max(0, tat - turn)))
				tat = turn + b.window - min(b.window, scale(left, interval, was))
			end
			b.changes, b.gifts, b.changed = b.changes + 1, '', true
		end
		b.tat, b.seen = tat, seen
	end
	b.seen = max(b.seen, now)
	return b
end

-- ask sets how long to wait for a token; 0: it may be taken now.
local function ask(b)
	if not b.off then
		b.full = max(b.tat, now) + b.interval
		b.wait = max(0, b.full - now - b.window)
	end
end

local function pay(b)
	if not b.off then
		b.tat, b.changed = b.full, true
	end
end

-- save keeps a bucket for as long as it differs from a new one.
local function save(b)
	if b.changed then
		local keep = max(b.tat - now, b.window) + 1000000
		redis.call('SET', b.key, string.format('%.0f %.0f %.0f %.0f %.0f %.0f%s',
			b.tat, b.seen, b.interval, b.burst, b.refunded, b.changes, b.gifts), 'PX', string.format('%.0f', floor(keep / 1000) + 1))
	end
end

-- mark says which charge of a bucket the last one is: see Go's spent.
local function mark(b)
	return b.tat + b.refunded
end

-- refund gives a token back that was charged with that mark, as much of it as time has
-- not given back already, once. See Go's given, of which gifts are the list.
local function refund(b, mark, changes)
	if b.off or b.tat <= b.seen or changes ~= b.changes then
		return
	end
	local list, owed = {}, {}
	for m, amount in string.gmatch(b.gifts, ' (%d+) (%d+)') do
		list[#list + 1] = {tonumber(m), tonumber(amount)}
	end
	local later, place, behind = 0, 0, 0
	for i = #list, 1, -1 do
		if list[i][1] == mark then
			return
		end
		if list[i][1] > mark then
			later = later + list[i][2]
		else
			place = max(place, i)
		end
	end
	local amount = min(b.interval, max(0, mark - b.refunded + later - b.seen))
	if amount == 0 or #list >= 1024 then
		return
	end
	table.insert(list, place + 1, {mark, amount})
	b.tat, b.refunded, b.changed = b.tat - amount, b.refunded + amount, true
	if b.refunded > 2 ^ 50 then
		b.refunded, b.changes, b.gifts = 0, b.changes + 1, ''
		return
	end
	-- What lies behind now is owed to nobody, and all before it lies further behind.
	for i = #list, 1, -1 do
		behind = behind + list[i][2]
		if list[i][1] - b.refunded + behind <= now then
			break
		end
		table.insert(owed, 1, string.format(' %.0f %.0f', list[i][1], list[i][2]))
	end
	b.gifts = table.concat(owed)
end
