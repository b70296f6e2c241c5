-- Finds out whether the store can be asked: it has it do all that the others have it do, as
-- one that only reads, or may not do some of it, is of no use. Nothing is left of that.
--
-- KEYS   any
-- reply  the time
needsRoom()
local key = KEYS[first + 1]
call('SET', key, '1', 'PX', '1000')
call('SETRANGE', key, '0', call('GET', key))
call('MGET', key)
call('PEXPIRE', key, '0')
call('ZADD', key, '1', 'id')
call('ZSCORE', key, 'id')
call('ZCARD', key)
call('ZCOUNT', key, '0', '1')
call('ZRANGEBYSCORE', key, '0', '1')
call('ZREMRANGEBYSCORE', key, '0', '0')
call('ZREM', key, 'id')
return pack('<d', now)
