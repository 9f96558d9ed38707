-- entomb(head, log | …, updated_ms)
-- ARGV[5] the time of the summary that the caller saw
-- Returns entombed | stays | what `unusable` says.

local head = load()
local verdict = unusable(head)
if verdict then return verdict end
if not head or not TERMINAL[head.status] or held(head) or head.updated_ms ~= ARGV[5] then
  return {'stays'}
end
return {redis.call('DEL', KEYS[2]) == 1 and 'entombed' or 'stays'}
