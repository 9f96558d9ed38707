-- list(hints, doubts, life | …, what, member, …)
-- KEYS[1] where to look, KEYS[2] since when members of it are doubted, KEYS[3] since when it is whole:
-- 'whole life', or 'building life token time' while it is made anew. A life is that of the server's
-- process and history. MARK is in a list that was whole once, and goes with it if it is evicted.
-- ARGV[5] what to do:
-- look: returns whole | lost | building | unknown, as it was never whole, or nothing is left of it
-- enter, member: enter it if it is not there; returns new if that was news to a whole list, else known
-- born, score: it has had no member before; returns whole | building
-- begin, score, token, ms: make it anew, unless somebody else began that less than so many ms ago, and
--   does so still; returns building | busy
-- go_on, token: returns building | lost, as everything that was entered may be then
-- finish, token: returns whole | lost

local MARK = '\1'
local what, argument, token = ARGV[5], ARGV[6], ARGV[7]
local said = redis.call('GET', KEYS[3]) or ''
local marked = redis.call('ZSCORE', KEYS[1], MARK)
local state, life, builder, since = string.match(said, '^(%l+) (%S+) ?(%S*) ?(%S*)$')
local now = ARGV[1] == '' and '-' or ARGV[1] .. ':' .. lineage().id
local here = marked and (now == '-' or life == now)

if what == 'look' then
  if here and state == 'whole' then return 'whole' end
  return (state == 'building' and state) or (said == '' and 'unknown') or 'lost'
elseif what == 'enter' then
  redis.call('ZREM', KEYS[2], argument)
  local added = redis.call('ZADD', KEYS[1], 'NX', 0, argument)
  return added == 1 and here and state == 'whole' and 'new' or 'known'
elseif what == 'born' then
  if state == 'building' then return state end
  redis.call('SET', KEYS[3], 'whole ' .. now)
  redis.call('ZADD', KEYS[1], argument, MARK)
  return 'whole'
elseif what == 'begin' then
  local busy_ms = tonumber(ARGV[8])
  if state == 'building' and builder ~= token and NOW - (tonumber(since) or 0) < busy_ms then
    return 'busy'
  end
  redis.call('SET', KEYS[3], table.concat({'building', now, token, whole(NOW)}, ' '))
  redis.call('ZADD', KEYS[1], argument, MARK)
  return 'building'
end
if state ~= 'building' or builder ~= argument or not here then return 'lost' end
if what == 'go_on' then
  redis.call('SET', KEYS[3], table.concat({'building', life, argument, whole(NOW)}, ' '))
  return 'building'
end
redis.call('SET', KEYS[3], 'whole ' .. life)
return 'whole'
