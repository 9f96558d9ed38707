-- Stands before every script.
-- KEYS[1] the head, KEYS[2] the log of a run; both are in one slot.
-- ARGV[1] run id of the server's process as the client found it when it connected, '' unknown
-- ARGV[2] '1' if a restart of this server loses nothing that it acknowledged
-- ARGV[3], ARGV[4] elapsed and wall time in ms by a test's clock, '' for this server's own
-- A verdict is an array whose first element says what it is. Nothing is written before all has been
-- decided, and the first write is one that a server without memory refuses.

local FORMAT = '1'
local NOBODY = string.rep('0', 40)
local TERMINAL = {done = true, failed = true, cancelled = true}
local FIELDS = {
  'format', 'seq', 'check', 'epoch', 'owner', 'expires_ms', 'claims', 'status', 'agent', 'step',
  'usage', 'started_ms', 'updated_ms', 'recoveries', 'detail', 'due_ms', 'server', 'replid',
  'restartable', 'in_doubt',
}

local ZERO = {seq = '0', epoch = '0', claims = '0'}

local function whole(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local WALL = tonumber(ARGV[4]) or tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local NOW = tonumber(ARGV[3]) or WALL

-- The head as a table, or nil.
local function load()
  local values = redis.call('HMGET', KEYS[1], unpack(FIELDS))
  if not values[1] then return nil end
  local head = {}
  for i, name in ipairs(FIELDS) do head[name] = values[i] or ZERO[name] or '' end
  return head
end

-- What the client makes a head of: the time, how many entries there are, the fields in order.
local function shown(head)
  local values = {whole(NOW), redis.call('LLEN', KEYS[2])}
  for _, name in ipairs(FIELDS) do values[#values + 1] = head[name] end
  return values
end

local function held(head)
  return head.owner ~= '' and (tonumber(head.expires_ms) or 0) > NOW
end

-- Whose history this server has, whose it had before, and how many replicas follow it.
local known
local function lineage()
  if not known then
    local info = redis.pcall('INFO', 'replication')
    if type(info) ~= 'string' then info = '' end
    known = {
      id = string.match(info, 'master_replid:(%x+)') or '',
      before = string.match(info, 'master_replid2:(%x+)') or NOBODY,
      replicas = tonumber(string.match(info, 'connected_slaves:(%d+)') or '0'),
    }
  end
  return known
end

-- Whether what the head's last writer was told to be kept may be missing here: nil if not, else how
-- this server came to have the run.
local function replaced(head)
  local now = lineage()
  if head.server == '' or ARGV[1] == '' or now.id == '' or TERMINAL[head.status] then return nil end
  if head.server == ARGV[1] and (now.before == NOBODY or head.replid == now.id) then return nil end
  if now.before ~= NOBODY then return head.server == ARGV[1] and 'demoted' or 'promoted' end
  if head.restartable == '1' and ARGV[2] == '1' then return nil end
  return 'restarted'
end

-- The verdict on a head or log that nobody may go on with; nil if all is well.
local function unusable(head)
  local entries = redis.call('LLEN', KEYS[2])
  if not head then return entries > 0 and {'headless'} or nil end
  if head.format ~= FORMAT then return {'newer', head.format} end
  local seq = tonumber(head.seq)
  if entries == seq or (entries == 0 and TERMINAL[head.status]) then return nil end
  if entries == 0 then return {'expired'} end
  return {'damaged', entries, head.seq}
end

-- The verdict on a server that may lack entries; nil if it does not.
local function doubtful(head)
  local how = head and replaced(head)
  return how and {'failed_over', how, head.server} or nil
end

-- Write the fields that change, and which server writes; `head` holds what is there.
local function put(head, fields)
  local now = lineage()
  fields.format, fields.server, fields.replid = FORMAT, ARGV[1], now.id
  fields.restartable = (ARGV[2] == '1' and now.replicas == 0) and '1' or '0'
  local changed = {}
  for name, value in pairs(fields) do
    if head[name] ~= value then
      changed[#changed + 1], changed[#changed + 2] = name, value
      head[name] = value
    end
  end
  if #changed > 0 then redis.call('HSET', KEYS[1], unpack(changed)) end
end

-- End the script unless these arguments are lifetimes in ms that PEXPIRE takes, before any write.
local LONGEST_MS = 4e12
local function check_lifetimes(first, last)
  for at = first, last do
    local ms = tonumber(ARGV[at])
    if not (ms and ms >= 0 and ms <= LONGEST_MS) then
      error('ARGV[' .. at .. '] is no lifetime, nothing was written')
    end
  end
end

local function expire(key, ms)
  if ms == '0' then
    redis.call('PERSIST', key)
  else
    redis.call('PEXPIRE', key, ms)
  end
end

-- Set for how long the keys stay. ARGV[at] is for the log of an ended run, ARGV[at + 1] for a head
-- that may go, ARGV[at + 2] for the log of an unfinished run; in ms, '0' is for ever. A run that
-- ended in doubt stays, since nothing else tells of it.
local function keep(head, at)
  local log_ms = ARGV[TERMINAL[head.status] and at or at + 2]
  if head.in_doubt ~= '' then log_ms = '0' end
  local stays = log_ms == '0' and head.seq ~= '0'
  expire(KEYS[1], stays and '0' or ARGV[at + 1])
  expire(KEYS[2], log_ms)
end

-- A head of a run that nobody knew.
local function blank()
  local head = {}
  for _, name in ipairs(FIELDS) do head[name] = ZERO[name] or '' end
  return head
end

