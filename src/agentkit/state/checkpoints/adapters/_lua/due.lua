-- due(due | …, offset, limit)
-- KEYS[1] runs that want a worker, by when
-- ARGV[5] how many to pass over, [6] how many at most
-- Returns the time, then members that are due, the longest due first.

return {whole(WALL), redis.call('ZRANGE', KEYS[1], '-inf', whole(WALL), 'BYSCORE', 'LIMIT',
  ARGV[5], ARGV[6])}
