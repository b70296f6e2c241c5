-- used counts a set of leases. Those of replicas that died run out.
local function used(key)
	local n = redis.call('ZCARD', key)
	if n > 0 then
		n = n - redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
	end
	return n
end

-- hold adds a lease, or renews it. The set itself goes some time after the last.
local function hold(key, lease, id)
	redis.call('ZADD', key, string.format('%.0f', now + lease), id)
	redis.call('PEXPIRE', key, string.format('%.0f', floor(lease / 500)))
end
