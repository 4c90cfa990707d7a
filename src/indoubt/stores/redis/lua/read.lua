-- KEYS: meta, then the hash of every record of head.ids.
answer[5] = {}
for number, id in ipairs(head.ids) do
  table.insert(answer[5], whole(KEYS[number + 1], id))
end
return answer
