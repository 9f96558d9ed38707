-- head(head, log | …)
-- Returns head, fields | absent | headless | newer, format | foreign, kind of the key.

for i, kind in ipairs({'hash', 'list'}) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= kind and found ~= 'none' then return {'foreign', found} end
end
local head = load()
if head then
  if head.format ~= FORMAT then return {'newer', head.format} end
  return {'head', shown(head)}
end
return unusable(nil) or {'absent'}
