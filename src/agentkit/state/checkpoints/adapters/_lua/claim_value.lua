-- claim_value(value | …, token, ttl_ms)
-- ARGV[5] token of the claimant, [6] for how long
-- Returns ours | taken, token of the claimant, value or nil.

check_lifetimes(6, 6)
local token, value, until_ms, until_wall_ms =
  unpack(redis.call('HMGET', KEYS[1], 'token', 'value', 'until_ms', 'until_wall_ms'))
if token and not (WALL >= tonumber(until_wall_ms) and NOW >= tonumber(until_ms)) then
  return {'taken', token, value}
end
local ttl_ms = tonumber(ARGV[6])
redis.call('HSET', KEYS[1], 'token', ARGV[5], 'until_ms', whole(NOW + ttl_ms),
  'until_wall_ms', whole(WALL + ttl_ms))
redis.call('HDEL', KEYS[1], 'value')
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return {'ours'}
