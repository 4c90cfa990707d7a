-- A page of one listing above (head.score, head.id), as rows of {id, score, record or false}.
-- Without head.id the scores are numbers of their own, and no two are alike. KEYS: meta, the listing.
local function above(a, b) -- by bytes: Lua's own order depends on the server's locale
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

-- Members of one score are in the order of their bytes: halve until the first one above is found.
local low = 0
if head.score and not head.id then
  low = redis.call('ZCOUNT', KEYS[2], '-inf', head.score)
elseif head.score then
  low = redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. head.score)
  local high = low + redis.call('ZCOUNT', KEYS[2], head.score, head.score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if above(redis.call('ZRANGE', KEYS[2], middle, middle)[1], head.id) then
      high = middle
    else
      low = middle + 1
    end
  end
end
answer[5] = {}
local members = redis.call('ZRANGE', KEYS[2], low, low + head.limit - 1, 'WITHSCORES')
for i = 1, #members, 2 do
  table.insert(answer[5], {members[i], members[i + 1], whole(key_of(members[i]), members[i])})
end
return answer
