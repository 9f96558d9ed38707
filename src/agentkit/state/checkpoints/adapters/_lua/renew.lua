-- renew(head, log | …, epoch, owner, ttl_ms, log_ms, head_ms, orphan_ms)
-- ARGV[5] epoch and [6] owner of the lease, [7] ttl in ms, [8] to [10] see `keep`
-- Returns renewed, seq, expiry or '' if the run wants no worker | lost, seq or '0' |
-- what `unusable` and `doubtful` say.

check_lifetimes(8, 10)
local head = load()
if not head then return {'lost', '0'} end
local verdict = unusable(head) or doubtful(head)
if verdict then return verdict end
if head.epoch ~= ARGV[5] or head.owner ~= ARGV[6] then return {'lost', head.seq} end
put(head, {expires_ms = whole(NOW + tonumber(ARGV[7]))})
if not TERMINAL[head.status] then keep(head, 8) end
return {'renewed', head.seq, head.due_ms ~= '' and head.expires_ms or ''}
