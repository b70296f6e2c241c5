-- Finds out whether the store can be asked: it writes, as one that only reads is of no
-- use.
--
-- KEYS   any
-- reply  the time
needsRoom()
call('SET', KEYS[first + 1], '1', 'PX', '1000')
return pack('<d', now)
