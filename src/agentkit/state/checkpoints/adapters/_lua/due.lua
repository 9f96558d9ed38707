-- due(due, held | …, offset, limit)
-- KEYS[1] runs that want a worker, by when, KEYS[2] until when runs are held
-- ARGV[5] how many to pass over, [6] how many at most
-- Returns the time, members that are due, the longest due first, and for each 1 if held, else 0.

local members = redis.call('ZRANGE', KEYS[1], '-inf', whole(WALL), 'BYSCORE', 'LIMIT', ARGV[5],
  ARGV[6])
if #members == 0 then return {whole(WALL), members, members} end
local held = {}
for i, expiry in ipairs(redis.call('ZMSCORE', KEYS[2], unpack(members))) do
  held[i] = (tonumber(expiry or '0') > NOW) and 1 or 0
end
return {whole(WALL), members, held}
