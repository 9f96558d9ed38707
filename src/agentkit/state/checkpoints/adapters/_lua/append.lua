-- append(head, log | …, after, epoch, owner, release, log_ms, head_ms, orphan_ms, n, fields, rows)
-- ARGV[5] the seq to append after, [6] epoch and [7] owner of the lease, both '' for a note,
-- [8] '1' to release, [9] to [11] see `keep`, [12] how many field names and values follow;
-- behind them the check of the last row, if there are rows, and the rows
-- Returns written, what has changed of the head, start and due time before | there, head |
-- refused, head or nil | what `unusable` and `doubtful` say.

check_lifetimes(9, 11)
local head = load()
local verdict = unusable(head) or doubtful(head)
if verdict then return verdict end

local BATCH = 4000  -- as many values as a call may take from the stack of Lua
local after, note = tonumber(ARGV[5]), ARGV[7] == ''
local first = 13 + tonumber(ARGV[12])
local rows = {}
for i = first + 1, #ARGV do rows[#rows + 1] = ARGV[i] end
local ours = head and not note and head.epoch == ARGV[6] and head.owner == ARGV[7]

-- Whether an earlier attempt did this.
local function repeats()
  if not head then return false end
  if #rows == 0 then return not note and head.epoch == ARGV[6] and head.owner == '' end
  if tonumber(head.seq) <= after then return false end
  local there = redis.call('LRANGE', KEYS[2], after, after + #rows - 1)
  if #there ~= #rows then return false end
  for i, row in ipairs(rows) do
    if there[i] ~= row then return false end
  end
  return true
end

if repeats() then
  if ARGV[8] == '1' and ours then put(head, {owner = '', expires_ms = ''}) end
  return {'there', shown(head)}
end
local takes
if not head then
  takes = note and after == 0
elseif note then
  takes = tonumber(head.seq) == after and not TERMINAL[head.status]
else
  takes = ours and tonumber(head.seq) == after
end
if not takes then return {'refused', head and shown(head) or false} end

head = head or blank()
local started_ms, due_ms = head.started_ms, head.due_ms
for i = 1, #rows, BATCH do
  redis.call('RPUSH', KEYS[2], unpack(rows, i, math.min(i + BATCH - 1, #rows)))
end
local fields = {seq = whole(after + #rows), epoch = head.epoch, claims = head.claims}
if #rows > 0 then fields.check = ARGV[first] end
if not note then fields.claims = '0' end
if ARGV[8] == '1' then fields.owner, fields.expires_ms = '', '' end
local names = {}
for i = 13, first - 1, 2 do names[#names + 1] = ARGV[i] end
for i, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
  -- A head without entries has no summary, but it counts takeovers.
  if fields.seq ~= '0' or names[i] == 'recoveries' then
    head[names[i]] = value
    fields[names[i]] = ARGV[12 + 2 * i]
  end
end
put(head, fields)
keep(head, 9)
local tip = redis.call('LLEN', KEYS[2]) > 0 and head.check or ''
return {'written', whole(NOW), head.seq, tip, head.epoch, head.owner, head.expires_ms,
  head.claims, head.recoveries, started_ms, due_ms}
