-- Runs jobs one after the other, each by itself: what one fails at keeps none of the others
-- from being run. One that comes after its deadline does nothing, as whoever sent it has
-- gone on without.
--
-- KEYS   those of all jobs
-- ARGV   of each job which it is, how many keys, integers and texts it has, and its
--        deadline, 0 for none; and these integers, and texts
-- reply  of each job how many integers it replies, and these, as they come: the first is the
--        time, negative if it came too late; or -1, if it failed; and of each that failed why
local out, said, heads, size = {}, {}, {}, #numbers
while at <= size do
	local job, itsNames, itsNumbers, itsTexts, deadline = args(5)
	local nextAt, ran, reply = at + 8 * itsNumbers, true, nil
	names, lastText = itsNames, text + itsTexts
	if deadline > 0 and now > deadline then
		reply = pack('<d', -now)
	else
		ran, reply = pcall(run, job)
	end
	local n = #out
	if ran then
		local length = #reply
		heads[length] = heads[length] or pack('<d', length / 8)
		out[n + 1], out[n + 2] = heads[length], reply
	else
		out[n + 1] = pack('<d', -1)
		said[#said + 1] = type(reply) == 'table' and reply.err or tostring(reply)
	end
	at, text, first = nextAt, lastText, first + itsNames
end
table.insert(said, 1, table.concat(out))
return said
