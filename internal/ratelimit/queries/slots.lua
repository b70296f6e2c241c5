-- What is told of leases that begin now is the same for all of one length: when they end,
-- and for how long the set is kept then.
local ends, lives = {}, {}
local function written(lease)
	if not ends[lease] then
		ends[lease], lives[lease] = format('%d', now + lease), format('%d', lease / 500)
	end
	return ends[lease], lives[lease]
end

-- used counts a set of leases. Those of replicas that died run out.
local function used(key)
	local n = call('ZCARD', key)
	if n > 0 then
		n = n - call('ZREMRANGEBYSCORE', key, '-inf', (written(0)))
	end
	return n
end

-- crowd counts a set of leases that may have so many, 0 for any number. Those that have run
-- out are looked for if they stand in somebody's way.
local function crowd(key, most)
	local n = call('ZCARD', key)
	if most > 0 and n >= most then
		n = n - call('ZREMRANGEBYSCORE', key, '-inf', (written(0)))
	end
	return n
end

-- hold adds a lease, or renews it. The set itself goes some time after the last.
local function hold(key, lease, id)
	local at, life = written(lease)
	call('ZADD', key, at, id)
	call('PEXPIRE', key, life)
end
