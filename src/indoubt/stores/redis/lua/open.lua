-- Make a partition, call it whole, or raise its epoch. KEYS: meta.
-- ARGV: "claim" | "make" | "whole" | "epoch", schema, incarnation, scheme, partitions, epoch.
-- Of several that make the ledger at once, the one that claims the first partition names it.
local meta, act = KEYS[1], ARGV[1]
local kept = redis.call('HMGET', meta, 'whole', 'incarnation', 'epoch')
local fits = kept[2] == ARGV[3]
if (act == 'claim' and not kept[2]) or (act == 'make' and not fits and not kept[1]) then
  redis.call('HSET', meta, 'schema', ARGV[2], 'incarnation', ARGV[3], 'scheme', ARGV[4],
    'partitions', ARGV[5], 'epoch', ARGV[6], 'writes', '0', 'now', '0', 'ahead', '0', 'n', '0')
elseif act == 'whole' and fits then
  redis.call('HSET', meta, 'whole', '1', 'schema', ARGV[2])
elseif act == 'epoch' and fits and tonumber(kept[3]) < tonumber(ARGV[6]) then
  redis.call('HSET', meta, 'epoch', ARGV[6])
end
return redis.call('HMGET', meta, 'schema', 'incarnation', 'scheme', 'partitions', 'epoch', 'whole')
