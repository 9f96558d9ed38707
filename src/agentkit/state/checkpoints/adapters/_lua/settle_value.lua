-- settle_value(value | …, token, value)
-- ARGV[5] token of the claimant, [6] the value
-- Returns settled | lost.

if redis.call('HGET', KEYS[1], 'token') ~= ARGV[5] then return {'lost'} end
redis.call('HSET', KEYS[1], 'value', ARGV[6])
return {'settled'}
