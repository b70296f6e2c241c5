-- What is asked for comes as integers, all in one argument, each as a double, which is what
-- Lua has, and as texts in those that follow. To read digits would take longer than to
-- decide by them.
local KEYS, ARGV, call, pcall, format = KEYS, ARGV, redis.call, pcall, string.format
local pack, unpack = struct.pack, struct.unpack
local numbers, at, text, lastText = ARGV[1], 1, 1, 1

-- The names that a job has follow after so many of the jobs before it.
local first, names = 0, 0

-- forms say that so many doubles follow each other. They are not put together here, as this
-- runs with each command.
local forms = {
	'<d', '<dd', '<ddd', '<dddd', '<ddddd', '<dddddd', '<ddddddd',
	[13] = '<ddddddddddddd', [16] = '<dddddddddddddddd', [21] = '<ddddddddddddddddddddd',
}

-- args returns the next n integers, for which there is a form, and one value more.
local function args(n)
	local from = at
	at = at + 8 * n
	return unpack(forms[n], numbers, from)
end

-- textArg returns the next text, or nil after the last.
local function textArg()
	if text < lastText then
		text = text + 1
		return ARGV[text]
	end
end
