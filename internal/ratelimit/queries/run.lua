-- Runs jobs one after the other, each by itself: what one fails at keeps none of the others
-- from being run. One that comes after its deadline does nothing, as whoever sent it has
-- gone on without.
--
-- KEYS   those of all jobs
-- ARGV   of each job which it is, how many keys, integers and texts it has, and its
--        deadline, 0 for none; and these integers, and texts
-- reply  of each job how many integers it replies, and these, as they come: the first is the
--        time, negative if it came too late; or -1, if it failed; and of each that failed why
local out, said, keys = {}, {}, 0
while at <= #numbers do
	local job, itsKeys, itsNumbers, itsTexts, deadline = args(5)
	local nextAt = at + 8 * itsNumbers
	lastText = text + itsTexts
	if deadline > 0 and now > deadline then
		out[#out + 1] = struct.pack(form(2), 1, -now)
	else
		local ran, reply = pcall(jobs[job], {unpack(KEYS, keys + 1, keys + itsKeys)})
		if ran then
			out[#out + 1] = struct.pack(form(#reply + 1), #reply, unpack(reply))
		else
			out[#out + 1] = struct.pack(form(1), -1)
			said[#said + 1] = type(reply) == 'table' and reply.err or tostring(reply)
		end
	end
	at, text, keys = nextAt, lastText, keys + itsKeys
end
table.insert(said, 1, table.concat(out))
return said
