-- Who waits for a lease of a set stands in that set too, beyond all leases: of each replica
-- one place, which is since when the first of its calls waits and whose it is, with until
-- when that is believed as its score. So a set that is not full with all of these in it has
-- a lease for each, and one more; who asks for that one need not look who waits. With the
-- places stands a bell, by which who ends a lease sees that there are some.
local beyond, stays, bell = 2 ^ 52, 1000000, 'bell'
local nobody = {members = 0, before = 0, others = 0}

-- replicaOf is the replica that a lease is of.
local function replicaOf(id)
	return string.match(id, '^(.*)%.')
end

-- waiting is who waits for a lease of a set: how many members of the set that is, and who
-- came first; of one replica the place, if it has one, and since when; and how many others
-- there are, and stand there since before came. Those who died are forgotten.
local function waiting(key, own, came)
	local list = call('ZRANGEBYSCORE', key, format('%d', beyond), '+inf', 'WITHSCORES')
	if #list == 0 then
		return nobody
	end
	local w, front = {members = 0, before = 0, others = 0}, nil
	for i = 1, #list, 2 do
		local place = list[i]
		local left = place ~= bell and list[i + 1] - beyond - now or 0
		if left < 0 or left > 2 * stays then -- of a clock that was set back
			call('ZREM', key, place)
		else
			w.members = w.members + 1
			if place ~= bell then
				local since, who = tonumber(string.sub(place, 1, 16)), string.sub(place, 18)
				if not front or place < front then
					front, w.first = place, who
				end
				if who == own then
					w.place, w.since = place, since
				else
					w.others = w.others + 1
					if since < came then
						w.before = w.before + 1
					end
				end
			end
		end
	end
	return w
end

-- stand has a replica of which waiting is known stand there since then.
local function stand(key, w, own, since)
	local place = format('%016d %s', since, own)
	if w.place and w.place ~= place then
		call('ZREM', key, w.place)
	end
	call('ZADD', key, format('%d', beyond + now + stays), place, '+inf', bell)
	call('PEXPIRE', key, '20000') -- as with a lease
end

-- ring tells a replica that a lease of a set is to be had. If that is not allowed, it
-- finds out by asking.
local function ring(key, who)
	redis.pcall('PUBLISH', 'agw2:bell:' .. who, key)
end
