-- Reads how a bucket and a set of slots stand, and changes neither.
--
-- KEYS   the bucket, the slots
-- ARGV   the limit
-- reply  the time; the level of the bucket; the slots in use

-- MGET has of what is no bucket, as where nothing is limited, that there is none.
local b = open(ofKey, KEYS[first + 1], call('MGET', KEYS[first + 1])[1], args(3))
return pack('<ddd', now, level(b), call('ZCOUNT', KEYS[first + 2], format('(%d', now), format('(%d', beyond)))
