-- A script that has written once may go on to when the store may keep no more: what it
-- has begun it is to end. So one job that forgets something would have those after it keep
-- something. Whether there is room is found out first, by a command that needs it and
-- changes nothing.
local room = redis.pcall('SETRANGE', KEYS[1], 0, '')
local noRoom = type(room) == 'table' and room.err and string.find(room.err, 'OOM', 1, true)
local function needsRoom()
	if noRoom then
		error(room)
	end
end
