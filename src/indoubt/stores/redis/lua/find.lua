-- Ids that begin with head.begins, among head.limit entries of the order of insertion from a place on.
-- KEYS: meta, the listing of all. Answers how many entries were looked at, and the ids.
local ids = redis.call('ZRANGE', KEYS[2], head.start, head.start + head.limit - 1)
answer[5], answer[6] = #ids, {}
for _, id in ipairs(ids) do
  if string.sub(id, 1, #head.begins) == head.begins then table.insert(answer[6], id) end
end
return answer
