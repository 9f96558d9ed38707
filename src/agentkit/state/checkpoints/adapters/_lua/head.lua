-- head(head, log | …)
-- Returns head, fields | absent | headless | newer, format.

local head = load()
if head then
  if head.format ~= FORMAT then return {'newer', head.format} end
  return {'head', shown(head)}
end
return unusable(nil) or {'absent'}
