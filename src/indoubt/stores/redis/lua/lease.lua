-- Take what is due: ownership, and the state as head.becomes says ({before: [after, sent]}).
-- KEYS: meta, this page's memory. ARGV[2]: the event. head.quotas: [[queue, limit], ...].
answer[5] = {}
local memory = redis.call('GET', KEYS[2])
if memory then -- the client sent this call again: the first page, as far as it still is so
  for _, taken in ipairs(cmsgpack.unpack(memory)) do
    if redis.call('HGET', key_of(taken[1]), 'v') == taken[2] then
      table.insert(answer[5], whole(key_of(taken[1]), taken[1]))
    end
  end
  return answer
end

local function raised(number)
  if number and #number > 15 then error({err = 'ERR a number without room to count on'}) end
  return text((number or 0) + 1)
end

local ends = text(now + head.lease_ms)
local picked = {}
for _, quota in ipairs(head.quotas) do
  for _, id in ipairs(due(quota[1], quota[2])) do
    local h = redis.call('HMGET', key_of(id), 'v', 'f', 'c', 'a', 's', 'i')
    if h[1] then
      table.insert(picked, {id = id, queue = quota[1], doubt = h[6], become = head.becomes[h[5]],
        v = raised(h[1]), f = raised(h[2]), c = raised(h[3]), a = raised(h[4])})
    end -- else: its record was evicted, or is on its way to another node
  end
end
if #picked == 0 then return answer end

local taken = {}
for _, p in ipairs(picked) do
  local key, id = key_of(p.id), p.id
  redis.call('HSET', key, 'v', p.v, 'f', p.f, 'c', p.c, 'o', head.owner, 'l', ends, 'r', ends,
    'U', text(now), 'w' .. p.v % 4, head.write_id)
  redis.call('ZADD', prefix .. 'q:' .. p.queue, ends, id)
  redis.call('RPUSH', prefix .. 'j:' .. id, text(now) .. ' ' .. ARGV[2])
  if p.become and p.become[2] then -- the claim is the dispatch
    redis.call('HSET', key, 's', p.become[1], 'a', p.a, 'd', text(now), 'p', text(now + head.permit_ms))
    redis.call('HDEL', key, 'i')
    if p.doubt then redis.call('ZREM', prefix .. 'doubt', id) end
  elseif p.become then
    redis.call('HSET', key, 's', p.become[1], 'i', text(now))
    redis.call('ZADD', prefix .. 'doubt', text(now), id)
  end
  table.insert(taken, {id, p.v})
  table.insert(answer[5], whole(key, id))
end
redis.call('SET', KEYS[2], cmsgpack.pack(taken), 'PX', head.memory_ms)
stamped(meta[7])
return answer
