-- read(head, log | …, after, limit)
-- ARGV[5] the seq behind which to begin, [6] how many rows at most
-- Returns rows, an array | what `unusable` says.

local verdict = unusable(load())
if verdict then return verdict end
local after, limit = tonumber(ARGV[5]), tonumber(ARGV[6])
if limit <= 0 then return {'rows', {}} end
return {'rows', redis.call('LRANGE', KEYS[2], after, after + limit - 1)}
