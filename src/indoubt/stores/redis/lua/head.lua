-- Every script begins so. KEYS[1]: the partition's meta hash. ARGV[1]: what is asked, as msgpack.
-- All keys share the partition's hash tag; those that only the data can name are built from prefix.
local head = cmsgpack.unpack(ARGV[1])
local prefix = string.sub(KEYS[1], 1, -5) -- without "meta"
local function text(number) return string.format('%.0f', number) end

local meta = redis.call('HMGET', KEYS[1], 'schema', 'incarnation', 'epoch', 'writes', 'now', 'ahead', 'n')
if not meta[1] then return {'missing'} end
if tonumber(meta[1]) > head.schema then return {'newer', meta[1]} end
if meta[2] ~= head.incarnation or tonumber(meta[4]) < head.writes then return {'rewound', meta[2], meta[4]} end

-- The partition's time: the server's wall clock, made monotone. Set back, it goes on from the last.
local now, ahead = 0, 0
do
  local time = redis.call('TIME')
  local wall, last = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(meta[5])
  ahead = tonumber(meta[6])
  if wall >= last then
    ahead = 0
  elseif wall + ahead < last then
    ahead = last - wall
  end
  now = wall + ahead
end
local answer = {'ok', now, tonumber(meta[3]), tonumber(meta[4])}

-- Remember that something was written, and when; n is the newest place in the order of insertion.
local function stamped(n)
  answer[4] = answer[4] + 1
  redis.call('HSET', KEYS[1], 'now', text(now), 'ahead', text(ahead), 'writes', text(answer[4]), 'n', n)
end

-- A record as it stands: its fields, its fixed part and its body, if that has a key of its own.
local function whole(key, id)
  local fields = redis.call('HGETALL', key)
  if #fields == 0 then return false end
  local fixed, body = redis.call('GET', prefix .. 'p:' .. id), redis.call('GET', prefix .. 'b:' .. id)
  return {id, fields, fixed, body}
end

-- The key of a record's hash: the one rule of keys.py, for ids that come out of an index.
local tag = string.match(prefix, '{%d%d}:$') .. 'intent:'
local function key_of(id)
  local first = string.find(id, '{', 1, true)
  if first and string.sub(id, first, first + #tag - 1) == tag then return id end
  return prefix .. 'r:' .. id
end
