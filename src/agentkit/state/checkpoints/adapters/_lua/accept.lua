-- accept(head, log | …, server)
-- ARGV[5] the run id of the server that the head was written by, as the caller saw it
-- Returns accepted | stays.

local head = load()
if not head or head.format ~= FORMAT or head.server ~= ARGV[5] then return {'stays'} end
put(head, {})
return {'accepted'}
