-- Counts more for a rule, whether there is room or not; nothing only reads.
--
-- KEYS   the rule's window
-- ARGV   its length; how much more
-- reply  the time; what is counted; what is left of the window
local w = window(KEYS[1], arg())
local n = arg()
if n > 0 then
	needsRoom()
	add(w, n)
end
return {now, w.used, w.left}
