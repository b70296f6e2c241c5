-- Gives back what a call has taken that waited for a slot, and is not to run after all.
--
-- KEYS   as those of decide
-- ARGV   whether it was refused, and not left by its caller; the limit of
--        its key's free refusals; of key, tenant and key at service each whether it has
--        paid, with mark and changes; the number of rules, and of each its window, what it counted, and in
--        which window
-- reply  the time; if the refusal is the key's own, how long until it has a free one; of
--        key, tenant and key at service interval and burst, which may be others by now
--        than the call's, and level; and of each rule what is counted, and what is left
--        of its window
local refused, freeInterval, freeBurst,
	paidKey, markKey, changesKey, paidTenant, markTenant, changesTenant,
	paidService, markService, changesService, rules = args(13)
local nameKey, nameFree, nameTenant, nameService = KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], KEYS[first + 4]
local stored = call('MGET', nameKey, nameFree, nameTenant, nameService)

local free = open(ofFree, nameFree, stored[2], freeInterval, freeBurst, 0)
local key = open(ofKey, nameKey, stored[1], -paidKey, 0, 0)
if paidKey == 1 then
	if refused == 1 then
		ask(free)
		if free.wait == 0 then
			pay(free)
			save(free)
		end
	end
	if free.wait == 0 then
		refund(key, markKey, changesKey)
		save(key)
	end
end
local tenant = open(ofTenant, nameTenant, stored[3], -paidTenant, 0, 0)
refund(tenant, markTenant, changesTenant)
save(tenant)
local service = open(ofService, nameService, stored[4], -paidService, 0, 0)
refund(service, markService, changesService)
save(service)

-- limit is that of a bucket, if it is known.
local function limit(b)
	if b.off then
		return 0, 0, 0
	end
	return b.interval, b.burst, b.tat - now
end

local reply = {pack('<dd', now, free.wait), pack('<ddd', limit(key)), pack('<ddd', limit(tenant)), pack('<ddd', limit(service))}
for i = 1, rules do
	local length, n, when = args(3)
	local w = window(KEYS[first + 6 + i], length)
	if n > 0 and w.at == when then
		add(w, -n)
	end
	reply[4 + i] = pack('<dd', w.used, w.left)
end
return table.concat(reply)
