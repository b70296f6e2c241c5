-- What is asked for comes as integers, all in one argument, each in 8 bytes, and as texts
-- in those that follow. To read digits would take longer than to decide by them.
local numbers, at, text, lastText = ARGV[1], 1, 1, 1

-- form says that so many integers follow each other.
local forms = {}
local function form(n)
	if not forms[n] then
		forms[n] = '<' .. string.rep('i8', n)
	end
	return forms[n]
end

-- args returns the next n integers, and one value more.
local function args(n)
	local from = at
	at = at + 8 * n
	return struct.unpack(form(n), numbers, from)
end

local function arg()
	local n = args(1)
	return n
end

-- textArg returns the next text, or nil after the last.
local function textArg()
	if text < lastText then
		text = text + 1
		return ARGV[text]
	end
end
