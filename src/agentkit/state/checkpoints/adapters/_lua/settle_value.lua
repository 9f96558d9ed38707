-- settle_value(value | …, token, value)
-- ARGV[5] token of the claimant, [6] the value
-- Returns settled | lost.

local token, until_ms, until_wall_ms =
  unpack(redis.call('HMGET', KEYS[1], 'token', 'until_ms', 'until_wall_ms'))
if token ~= ARGV[5] or (WALL >= tonumber(until_wall_ms) and NOW >= tonumber(until_ms)) then
  return {'lost'}
end
redis.call('HSET', KEYS[1], 'value', ARGV[6])
return {'settled'}
