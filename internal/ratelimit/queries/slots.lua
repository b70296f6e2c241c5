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

-- crowd counts a set of leases that may have so many, 0 for any number, as it is for who
-- waits since came: others who do so for longer are counted as if they had theirs, and
-- whose turn it is is told, if they are in the way. Where there is room for all who wait it does not matter
-- who does, nor which leases have run out.
local function crowd(key, most, id, came)
	local n = call('ZCARD', key)
	if most == 0 or n < most then
		return n
	end
	n = n - call('ZREMRANGEBYSCORE', key, '-inf', (written(0)))
	local w = waiting(key, replicaOf(id), came)
	n = n - w.members
	if n < most and n + w.before >= most then
		ring(key, w.first)
	end
	return n + w.before
end

-- line has who asks for a lease wait for one of a full set.
local function line(key, id)
	local own = replicaOf(id)
	local w = waiting(key, own, now)
	stand(key, w, own, w.since or now)
end

-- hold adds a lease, or renews it. The set itself goes some time after the last.
local function hold(key, lease, id)
	local at, life = written(lease)
	call('ZADD', key, at, id)
	call('PEXPIRE', key, life)
end
