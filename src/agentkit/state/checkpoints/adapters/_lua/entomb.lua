-- entomb(head, log | …, updated_ms, token)
-- ARGV[5] the time of the summary that the caller saw, [6] token of this request
-- Returns entombed | stays | what `unusable` says.

local head = load()
local verdict = unusable(head)
if verdict then return verdict end
if not head or not TERMINAL[head.status] or held(head) or head.updated_ms ~= ARGV[5] then
  return {'stays'}
end
if redis.call('DEL', KEYS[2]) == 1 then
  redis.call('HSET', KEYS[1], 'entombed', ARGV[6])
  return {'entombed'}
end
return {redis.call('HGET', KEYS[1], 'entombed') == ARGV[6] and 'entombed' or 'stays'}
