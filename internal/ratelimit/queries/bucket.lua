-- Numbers are integers below 2^53, which Lua keeps exactly. They become text by %d
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

-- A bucket is kept as these, each as a double: tat, when it is full again; seen, when it
-- was last touched; the interval and the burst that it is under; what was refunded, and how
-- often that began anew; and when the store removes it. The gifts follow, two doubles each.
-- See Go's bucket, which all of it follows step by step.
local record, recordLength = forms[7], 56

-- Whatever job opens a bucket opens it as one of these, whose fields are all set anew: to
-- make tables takes longer than to fill them.
local ofKey, ofFree, ofTenant, ofService = {}, {}, {}, {}

-- open has b be the bucket that is stored, as it is now under a limit that has been in force
-- for age, or, if that is negative, since it is asked for. An interval of 0 is no limit, and
-- a negative one whichever the bucket is under.
local function open(b, key, stored, interval, burst, age)
	b.key, b.interval, b.burst, b.window = key, interval, burst, interval * burst
	b.tat, b.seen, b.refunded, b.changes, b.gifts, b.ends = 0, now, 0, 0, '', 0
	b.off, b.changed, b.wait, b.full = interval == 0, false, 0, 0
	if interval == 0 then
		return b
	end
	if not stored or #stored < recordLength then
		b.off = interval < 0 -- it is full
		return b
	end
	local tat, seen, was, many
	tat, seen, was, many, b.refunded, b.changes, b.ends = unpack(record, stored)
	if #stored > recordLength then
		b.gifts = string.sub(stored, recordLength + 1)
	end
	local window = was * many
	if interval < 0 then
		interval, burst = was, many
		b.interval, b.burst, b.window = was, many, window
	end
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
		b.changes, b.gifts, b.changed, b.ends = b.changes + 1, '', true, 0
	end
	b.tat = tat
	if seen > now then
		b.seen = seen
	end
	return b
end

-- level is for how long from now a bucket is not full.
local function level(b)
	if b.off then
		return 0
	end
	return b.tat - now
end

-- ask sets how long to wait for a token; 0: it may be taken now.
local function ask(b)
	if not b.off then
		local full = b.tat
		if full < now then
			full = now
		end
		full = full + b.interval
		b.full = full
		if full - now > b.window then
			b.wait = full - now - b.window
		end
	end
end

local function pay(b)
	if not b.off then
		b.tat, b.changed = b.full, true
	end
end

-- save keeps a bucket for as long as it differs from a new one, and up to 10 s longer: so
-- nothing but tat and seen has to be written each time.
local function save(b)
	if not b.changed then
		return
	end
	local life = b.window
	if b.tat - now > life then
		life = b.tat - now
	end
	local ends = now + life + 1000000
	if ends <= b.ends then
		call('SETRANGE', b.key, '0', pack('<dd', b.tat, b.seen))
		return
	end
	life = life + 11000000
	call('SET', b.key, pack(record, b.tat, b.seen, b.interval, b.burst, b.refunded, b.changes, now + life) .. b.gifts,
		'PX', format('%d', life / 1000 + 1))
end

-- refund gives a token back that was charged with that mark, which is tat with all that
-- was refunded, as much of it as time has not given back already, once. See Go's given,
-- of which gifts are the list.
local function refund(b, mark, changes)
	if b.off or b.tat <= b.seen or changes ~= b.changes then
		return
	end
	local list, owed = {}, {}
	for at = 1, #b.gifts, 16 do
		list[#list + 1] = {unpack('<dd', b.gifts, at)}
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
	b.tat, b.refunded, b.changed, b.ends = b.tat - amount, b.refunded + amount, true, 0
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
		table.insert(owed, 1, pack('<dd', list[i][1], list[i][2]))
	end
	b.gifts = table.concat(owed)
end
