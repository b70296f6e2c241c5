-- Counts more for a rule, whether there is room or not; nothing only reads.
--
-- KEYS   the rule's window
-- ARGV   its length; how much more
-- reply  the time; what is counted; what is left of the window
local length, n = args(2)
local w = window(KEYS[first + 1], length)
if n > 0 then
	needsRoom()
	add(w, n)
end
return pack('<ddd', now, w.used, w.left)
