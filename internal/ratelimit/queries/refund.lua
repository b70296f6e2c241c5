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
local refused = arg() == 1

local reply = {now, 0}
local function giveBack(i, pays)
	local paid, mark, changes = arg() == 1, arg(), arg()
	local b = {off = true}
	if paid then
		b = open(KEYS[i], -1, 0, 0)
		if pays() then
			refund(b, mark, changes)
			save(b)
		end
	end
	local n = #reply
	reply[n + 1], reply[n + 2], reply[n + 3] = 0, 0, 0
	if not b.off then
		reply[n + 1], reply[n + 2], reply[n + 3] = b.interval, b.burst, b.tat - now
	end
end

local function always()
	return true
end

local free = open(KEYS[2], arg(), arg(), 0)
giveBack(1, function()
	if refused then
		ask(free)
		reply[2] = free.wait
		if free.wait == 0 then
			pay(free)
			save(free)
		end
	end
	return reply[2] == 0
end)
giveBack(3, always)
giveBack(4, always)
for i = 1, arg() do
	local w = window(KEYS[6 + i], arg())
	local n, when = arg(), arg()
	if n > 0 and w.at == when then
		add(w, -n)
	end
	reply[#reply + 1] = w.used
	reply[#reply + 1] = w.left
end
return reply
