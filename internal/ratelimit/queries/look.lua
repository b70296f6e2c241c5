-- Reads how a bucket and a set of slots stand, and changes neither.
--
-- KEYS   the bucket, the slots
-- ARGV   the limit
-- reply  the time; the level of the bucket; the slots in use
local b = open(KEYS[1], arg(), arg(), arg())
return {now, b.off and 0 or b.tat - now, redis.call('ZCOUNT', KEYS[2], string.format('(%.0f', now), '+inf')}
