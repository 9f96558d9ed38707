-- delete(head, log, epoch | …, epoch_ms, token)
-- KEYS[3] keeps the highest epoch of the run, and who deleted it last, for ARGV[5] ms
-- ARGV[6] token of this request
-- Returns deleted | absent | in_use, head | newer, format.

check_lifetimes(5, 5)
local known = redis.call('GET', KEYS[3]) or ''
-- A run that was begun since the first attempt is another one.
if string.match(known, ' (.+)$') == ARGV[6] then return {'deleted'} end
local head = load()
local verdict = unusable(head)
if not head and not verdict then return {'absent'} end
if verdict and verdict[1] == 'newer' then return verdict end
if head and held(head) then return {'in_use', shown(head)} end
local epoch = head and head.epoch or string.match(known, '^%d+') or '0'
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SET', KEYS[3], epoch .. ' ' .. ARGV[6], 'PX', ARGV[5])
return {'deleted'}
