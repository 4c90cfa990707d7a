-- What is due in the queues of head.quotas: rows of {id, fields, fixed part, body}.
answer[5] = {}
for _, quota in ipairs(head.quotas) do
  for _, id in ipairs(due(quota[1], quota[2])) do
    table.insert(answer[5], whole(key_of(id), id))
  end
end
return answer
