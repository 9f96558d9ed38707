-- delete(head, log, epoch | …, epoch_ms)
-- KEYS[3] keeps the highest epoch of the run for ARGV[5] ms
-- Returns deleted | absent | in_use, head | newer, format.

local head = load()
local verdict = unusable(head)
if not head and not verdict then return {'absent'} end
if verdict and verdict[1] == 'newer' then return verdict end
if head and held(head) then return {'in_use', shown(head)} end
redis.call('DEL', KEYS[1], KEYS[2])
if head then redis.call('SET', KEYS[3], head.epoch, 'PX', ARGV[5]) end
return {'deleted'}
