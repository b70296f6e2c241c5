-- The time, in microseconds, is the store's alone: replicas have clocks of their own.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
