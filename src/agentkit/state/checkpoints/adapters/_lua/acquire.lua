-- acquire(head, log, epoch | …, owner, ttl_ms, token, supersede, above, log_ms, head_ms, orphan_ms)
-- KEYS[3] the highest epoch of this run before it was deleted, and who did that
-- ARGV[5] owner, [6] ttl in ms, [7] token of this request, [8] the epoch that may be superseded
-- or '', [9] an epoch that the new one must exceed, [10] to [12] see `keep`
-- Returns granted, took over ('1' or '0'), head | in_use, head | what `unusable` and `doubtful` say.

check_lifetimes(10, 12)
local head = load()
local verdict = unusable(head) or doubtful(head)
if verdict then return verdict end
local claim = head and redis.call('HGET', KEYS[1], 'claim') or ''
if head and head.owner == ARGV[5] and string.sub(claim, 3) == ARGV[7] then
  return {'granted', string.sub(claim, 1, 1), shown(head)}
end
if head and held(head) and head.epoch ~= ARGV[8] then return {'in_use', shown(head)} end

head = head or blank()
local taken = (head.owner ~= '' and not TERMINAL[head.status]) and '1' or '0'
local forgotten = tonumber(string.match(redis.call('GET', KEYS[3]) or '', '^%d+') or '0')
local epoch = math.max(tonumber(head.epoch) + 1, forgotten + 1, tonumber(ARGV[9]) + 1, WALL)
put(head, {
  seq = head.seq,
  epoch = whole(epoch),
  owner = ARGV[5],
  expires_ms = whole(NOW + tonumber(ARGV[6])),
  claims = whole(tonumber(head.claims) + (head.owner ~= '' and 1 or 0)),
  claim = taken .. ':' .. ARGV[7],
})
if not TERMINAL[head.status] then keep(head, 10) end
return {'granted', taken, shown(head)}
