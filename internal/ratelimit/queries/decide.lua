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
--        window, what the call counts for, its maximum, and whether it only observes
-- reply  the time; the outcome; of key, tenant, and key at service level, wait, mark
--        and changes; the slots in use of tenant and service; and of each rule what is
--        counted, what is left of its window, whether it refused, and the window
--
-- A limit is interval, burst and age. An interval of 0 is none.
-- How: all; the tokens; nothing; the slots; the tokens of who has slots.
needsRoom()
local all, tokens, nothing, slots, paid = 1, 2, 3, 4, 5
local admitted, byKey, byRate, bySlots, byKeyForSlots, queued = 0, 1, 2, 3, 4, 5

local how, lease = arg(), arg()
local id = textArg()
local starved = arg() == 1
local owes, marked, changes = arg(), arg(), arg()
local key = open(KEYS[1], arg(), arg(), arg())
local free = {arg(), arg()}

local function level(b)
	if b.off then
		return 0
	end
	return b.tat - now
end

local reply = {now, admitted}
local function tell(b)
	local n = #reply
	reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = level(b), b.wait, mark(b), b.changes
end

if owes == 1 then
	ask(key)
	if key.wait > 0 then
		save(key)
		reply[2] = byKey
		tell(key)
		return reply
	end
end

local tenant = open(KEYS[3], arg(), arg(), arg())
local bucket = open(KEYS[4], arg(), arg(), arg())
local capTenant, capService = arg(), arg()
local rules, dry = {}, arg() == 1
for i = 1, arg() do
	local r = window(KEYS[6 + i], arg())
	r.count, r.most, r.observes = arg(), arg(), arg() == 1
	r.refuses = not (r.most >= 0 and (r.count == 0 or r.count <= r.most - r.used))
	dry = dry or r.refuses and not r.observes
	rules[i] = r
end
if how ~= slots then
	ask(tenant)
	ask(bucket)
end
local ofTenant, ofService = 0, 0
if capTenant >= 0 then
	ofTenant = used(KEYS[5])
end
if capService >= 0 then
	ofService = used(KEYS[6])
end
local full = starved or capTenant > 0 and ofTenant >= capTenant or capService > 0 and ofService >= capService

if how == paid then
	full = false
end
local outcome = admitted
if how ~= slots and (tenant.wait > 0 or bucket.wait > 0 or dry) then
	outcome = byRate
elseif how == tokens then
	outcome = queued
elseif full then
	outcome = bySlots
end

if owes > 0 and outcome == bySlots and how ~= slots then
	-- A refusal for want of a slot costs the key nothing, until ten times its limit of
	-- them were free.
	local b = open(KEYS[2], free[1], free[2], 0)
	ask(b)
	if b.wait > 0 then
		outcome = byKeyForSlots
		key.wait = b.wait
	else
		pay(b)
		if owes == 2 then
			refund(key, marked, changes)
		end
	end
	save(b)
end
if owes == 1 and outcome ~= bySlots then
	pay(key)
end
if (outcome == admitted or outcome == queued) and how ~= slots then
	pay(tenant)
	pay(bucket)
	for _, r in ipairs(rules) do
		if not r.refuses and r.count > 0 then
			add(r, r.count)
		end
	end
end
if outcome == admitted and how ~= paid then
	if capTenant >= 0 then
		hold(KEYS[5], lease, id)
		ofTenant = ofTenant + 1
	end
	if capService >= 0 then
		hold(KEYS[6], lease, id)
		ofService = ofService + 1
	end
end
save(key)
save(tenant)
save(bucket)

reply[2] = outcome
tell(key)
tell(tenant)
tell(bucket)
reply[#reply + 1] = ofTenant
reply[#reply + 1] = ofService
for _, r in ipairs(rules) do
	local n = #reply
	reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = r.used, r.left, r.refuses and 1 or 0, r.at
end
return reply
