-- One batch, or nothing of it. KEYS: meta, then the hash of every record that is named; head.ids has
-- their ids under the same numbers. Payloads are ARGV of their own.
local FIELDS = {'v', 'f', 'o', 'l', 'x', 'r', 'i', 'q', 'P', 'n'}
local held = {}
local function look(at)
  if held[at] == nil then
    local row = redis.call('HMGET', KEYS[at], unpack(FIELDS))
    held[at] = row[1] and row
    if not row[1] and redis.call('EXISTS', KEYS[at]) == 1 then
      error({err = 'WRONGTYPE this key belongs to another program'})
    end
  end
  return held[at]
end

local function refusal()
  for _, guard in ipairs(head.guards) do
    local h = look(guard[1])
    if not h then return guard[1], 'missing' end
    if h[2] ~= guard[2] then return guard[1], 'fence' end
    if guard[3] and h[5] then return guard[1], 'cancelled' end
  end
  local gone = {}
  for _, delete in ipairs(head.deletes) do
    local h = look(delete[1])
    if not h then return delete[1], 'missing' end
    if h[1] ~= delete[2] then return delete[1], 'version' end
    gone[delete[1]] = true
  end
  for _, put in ipairs(head.puts) do
    local h = not gone[put.at] and look(put.at)
    if not put.expect then
      if h then return put.at, 'exists' end
    elseif not h then
      return put.at, 'missing'
    elseif h[1] ~= put.expect then
      return put.at, 'version'
    elseif put.free and (h[4] or '') ~= put.free then
      return put.at, 'lease'
    end
  end
  for _, extend in ipairs(head.extends) do
    local h = look(extend.at)
    if not h then return extend.at, 'missing' end
    if h[3] ~= extend.owner or h[2] ~= extend.fence then return extend.at, 'held' end
  end
end

-- Did this very write land before? Then: has one of its records moved on since?
local function repeated()
  local landed, superseded = false, 0
  for _, put in ipairs(head.puts) do
    local h = look(put.at)
    local since = h and h[1] - put.landed
    if since ~= 0 then superseded = 1 end
    if h and since >= 0 and since < 4 and redis.call('HGET', KEYS[put.at], put.w) == head.write_id then
      landed = true
    end
  end
  return landed and superseded
end

local function listed(zset, id, before, after)
  if after then
    if after ~= before then redis.call('ZADD', zset, after, id) end
  elseif before then
    redis.call('ZREM', zset, id)
  end
end

-- Set and drop fields, with times that are relative to now; then bring the listings up to them.
local function change(item, before)
  local key, id = KEYS[item.at], head.ids[item.at]
  for field, ms in pairs(item.rel) do
    table.insert(item.set, field)
    table.insert(item.set, text(now + ms))
  end
  if #item.set > 0 then redis.call('HSET', key, unpack(item.set)) end
  if before and #item.drop > 0 then redis.call('HDEL', key, unpack(item.drop)) end
  local h = redis.call('HMGET', key, 'r', 'i', 'q')
  listed(prefix .. 'q:' .. h[3], id, before and before[6], h[1])
  listed(prefix .. 'doubt', id, before and before[7], h[2])
end

local newest = tonumber(meta[7])
local function insert(put)
  local id = head.ids[put.at]
  newest = math.max(newest + 1, now * 16)
  local n = text(newest * 64 + head.partition)
  for _, item in ipairs({'C', text(now), 'n', n, 'q', put.queue}) do table.insert(put.set, item) end
  if put.parent then
    table.insert(put.set, 'P')
    table.insert(put.set, put.parent)
    redis.call('ZADD', prefix .. 'c:' .. put.parent, n, id)
  end
  redis.call('HSETNX', prefix .. 'queues', put.queue, put.name)
  redis.call('ZADD', prefix .. 'all', n, id)
  redis.call('SET', prefix .. 'p:' .. id, ARGV[put.fixed])
  change(put, nil)
end

local function update(put)
  local id = head.ids[put.at]
  table.insert(put.set, 'U')
  table.insert(put.set, text(now))
  if put.body then redis.call('SET', prefix .. 'b:' .. id, ARGV[put.body]) end
  redis.call('RPUSH', prefix .. 'j:' .. id, text(now) .. ' ' .. ARGV[put.event])
  change(put, held[put.at])
end

local function remove(delete)
  local at, id = delete[1], head.ids[delete[1]]
  local h = held[at]
  redis.call('DEL', KEYS[at], prefix .. 'p:' .. id, prefix .. 'b:' .. id, prefix .. 'j:' .. id)
  redis.call('ZREM', prefix .. 'all', id)
  listed(prefix .. 'q:' .. h[8], id, h[6], nil)
  listed(prefix .. 'doubt', id, h[7], nil)
  if h[9] then redis.call('ZREM', prefix .. 'c:' .. h[9], id) end
  held[at] = false
end

local at, why = refusal()
if at then
  local superseded = repeated()
  if superseded then
    answer[5], answer[6] = 'repeated', superseded
    return answer
  end
  answer[5], answer[6], answer[7], answer[8] = 'conflict', head.ids[at], why, {}
  for number = 2, #KEYS do
    local row = whole(KEYS[number], head.ids[number])
    if row then table.insert(answer[8], row) end
  end
  return answer
end
for _, delete in ipairs(head.deletes) do remove(delete) end
for _, put in ipairs(head.puts) do
  if put.expect then update(put) else insert(put) end
end
for _, extend in ipairs(head.extends) do change(extend, held[extend.at]) end
if #head.puts + #head.deletes + #head.extends > 0 then stamped(text(newest)) end
for _, topic in ipairs(head.wakes) do redis.call('PUBLISH', head.channel, topic) end
answer[5] = 'written'
return answer
