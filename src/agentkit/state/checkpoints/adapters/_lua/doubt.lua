-- doubt(hints, doubts | …, doubted_ms, member, score or '', mark or '', …)
-- KEYS[1] where to look, KEYS[2] since when each member of it is doubted, which is its mark
-- ARGV[5] what has been doubted for so long, under that mark if there is one behind it, is taken out
-- or moved to the score; what is not doubted is from now on, if it is there
-- Returns for each its mark, nil if it has none. A server that takes no writes marks nothing.

local marks = {}
for i = 6, #ARGV, 3 do
  local member, score, mark = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local since = redis.call('ZSCORE', KEYS[2], member)
  if not since and redis.call('ZSCORE', KEYS[1], member) then
    local marked = redis.pcall('ZADD', KEYS[2], whole(NOW), member)
    since = marked == 1 and whole(NOW)
  elseif since and (mark == '' or mark == since) and NOW - since >= tonumber(ARGV[5]) then
    if score == '' then
      redis.pcall('ZREM', KEYS[1], member)
    else
      redis.pcall('ZADD', KEYS[1], 'XX', score, member)
    end
    redis.pcall('ZREM', KEYS[2], member)
  end
  marks[#marks + 1] = since
end
return marks
