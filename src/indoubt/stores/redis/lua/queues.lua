-- The queues of this partition that begin with head.begins and hold something.
answer[5] = {}
local names = redis.call('HGETALL', prefix .. 'queues')
for i = 1, #names, 2 do
  if string.sub(names[i + 1], 1, #head.begins) == head.begins
    and redis.call('EXISTS', prefix .. 'q:' .. names[i]) == 1 then
    table.insert(answer[5], names[i + 1])
  end
end
return answer
