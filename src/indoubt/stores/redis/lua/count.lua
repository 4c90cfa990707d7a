-- How many are due in each queue of head.quotas, in all lanes.
for _, quota in ipairs(head.quotas) do
  table.insert(answer, redis.call('ZCOUNT', prefix .. 'q:' .. quota[1], '-inf', now))
end
return answer
