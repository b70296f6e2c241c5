-- Decides one call, all or nothing: a token of key, tenant and service, what it counts
-- for in each rule, and a slot of tenant and service.
--
-- KEYS   the key's bucket, that of its free refusals, the tenant's or that of a caller who
--        has none, that of the key at the service, the tenant's slots, the service's slots, and those of the rules
-- ARGV   how (below); the lease: for how long, and its id; whether the
--        replica itself has no slot; of the key what it owes (0 nothing, 1 a token, 2
--        it has paid, with mark and changes), its limit, and that of free refusals; the
--        limits of tenant and of key at service; the caps of tenant and service, -1
--        where there is none to count for; whether something else refuses as a bucket does;
--        the number of rules, and of each its
--        window, what the call counts for, its maximum, and whether it only observes;
--        and, if it is the slots that are asked for, for how long the call has waited
-- reply  the time; the outcome; of key, tenant, and key at service level, wait, mark
--        and changes; the slots of tenant and service that are in use, or of who comes before;
--        and of each rule what is counted, what is left of its window, whether it refused, and the window
--
-- A limit is interval, burst and age. An interval of 0 is none.
-- How: all; the tokens; nothing; the slots; the tokens of who has slots; all, or, if slots are
-- all that it lacks, the tokens. Who gets the tokens alone stands in line for the slots.
needsRoom()
local all, tokens, nothing, slots, paid, either = 1, 2, 3, 4, 5, 6
local admitted, byKey, byRate, bySlots, byKeyForSlots, queued = 0, 1, 2, 3, 4, 5

local how, lease, starved, owes, marked, changes,
	keyInterval, keyBurst, keyAge, freeInterval, freeBurst,
	tenantInterval, tenantBurst, tenantAge, serviceInterval, serviceBurst, serviceAge,
	capTenant, capService, dry, rules = args(21)
local nameKey, nameTenant, nameService = KEYS[first + 1], KEYS[first + 3], KEYS[first + 4]
local setTenant, setService = KEYS[first + 5], KEYS[first + 6]

local stored = call('MGET', nameKey, nameTenant, nameService)
local key = open(ofKey, nameKey, stored[1], keyInterval, keyBurst, keyAge)
if owes == 1 then
	ask(key)
	if key.wait > 0 then
		save(key)
		return pack(forms[6], now, byKey, level(key), key.wait, key.tat + key.refunded, key.changes)
	end
end

local tenant = open(ofTenant, nameTenant, stored[2], tenantInterval, tenantBurst, tenantAge)
local service = open(ofService, nameService, stored[3], serviceInterval, serviceBurst, serviceAge)
local uses, refuses = nil, dry == 1
for i = 1, rules do
	local length, count, most, observes = args(4)
	local r = window(KEYS[first + 6 + i], length)
	r.count, r.refuses = count, not (most >= 0 and (count == 0 or count <= most - r.used))
	refuses = refuses or r.refuses and observes == 0
	uses = uses or {}
	uses[i] = r
end
if how ~= slots then
	ask(tenant)
	ask(service)
end
local id, came = textArg(), now
if how == slots then
	came = now - args(1)
end
local inTenant, inService = 0, 0
if capTenant >= 0 then
	inTenant = crowd(setTenant, capTenant, id, came)
end
if capService >= 0 then
	inService = crowd(setService, capService, id, came)
end
local fullTenant, fullService = capTenant > 0 and inTenant >= capTenant, capService > 0 and inService >= capService
local full = starved == 1 or fullTenant or fullService

local outcome = admitted
if how ~= slots and (tenant.wait > 0 or service.wait > 0 or refuses) then
	outcome = byRate
elseif how == tokens or full and how == either then
	outcome = queued
elseif full and how ~= paid then
	outcome = bySlots
end

if owes > 0 and outcome == bySlots and how ~= slots then
	-- A refusal for want of a slot costs the key nothing, until ten times its limit of
	-- them were free.
	local nameFree = KEYS[first + 2]
	local free = open(ofFree, nameFree, call('GET', nameFree), freeInterval, freeBurst, 0)
	ask(free)
	if free.wait > 0 then
		outcome = byKeyForSlots
		key.wait = free.wait
	else
		pay(free)
		if owes == 2 then
			refund(key, marked, changes)
		end
	end
	save(free)
end
if owes == 1 and outcome ~= bySlots then
	pay(key)
end
if (outcome == admitted or outcome == queued) and how ~= slots then
	pay(tenant)
	pay(service)
	for i = 1, rules do
		local r = uses[i]
		if not r.refuses and r.count > 0 then
			add(r, r.count)
		end
	end
end
if outcome == admitted and how ~= paid then
	if capTenant >= 0 or capService >= 0 then
		if capTenant >= 0 then
			hold(setTenant, lease, id)
			inTenant = inTenant + 1
		end
		if capService >= 0 then
			hold(setService, lease, id)
			inService = inService + 1
		end
	end
end
if outcome == queued and fullTenant then
	line(setTenant, id)
end
if outcome == queued and fullService then
	line(setService, id)
end
save(key)
save(tenant)
save(service)

local reply = pack(forms[16], now, outcome,
	level(key), key.wait, key.tat + key.refunded, key.changes,
	level(tenant), tenant.wait, tenant.tat + tenant.refunded, tenant.changes,
	level(service), service.wait, service.tat + service.refunded, service.changes,
	inTenant, inService)
if rules == 0 then
	return reply
end
for i = 1, rules do
	local r = uses[i]
	uses[i] = pack('<dddd', r.used, r.left, r.refuses and 1 or 0, r.at)
end
return reply .. table.concat(uses)
