-- What is due in one queue of this partition, oldest first; a lane's share by crc32 of the id.
local crc
local function share(id)
  if not crc then
    crc = {}
    for byte = 0, 255 do
      local c = byte
      for _ = 1, 8 do c = bit.bxor(bit.rshift(c, 1), bit.band(-bit.band(c, 1), 0xEDB88320)) end
      crc[byte] = c
    end
  end
  local c = -1
  for i = 1, #id do
    c = bit.bxor(bit.rshift(c, 8), crc[bit.band(bit.bxor(c, string.byte(id, i)), 255)])
  end
  return bit.bnot(c) % 4294967296
end

local function due(queue, limit)
  local found, from, step = {}, 0, head.count and 256 or limit
  while #found < limit and step > 0 do
    local ids = redis.call('ZRANGE', prefix .. 'q:' .. queue, '-inf', now, 'BYSCORE', 'LIMIT', from, step)
    for _, id in ipairs(ids) do
      if #found < limit and (not head.count or share(id) % head.count == head.index) then
        table.insert(found, id)
      end
    end
    if #ids < step then break end
    from = from + step
  end
  return found
end
