-- Events of one record. KEYS: meta, its hash, its journal, its fixed part (which holds the first event).
local h = redis.call('HMGET', KEYS[2], 'v', 'C')
if not h[1] then return answer end
local first = h[1] - redis.call('LLEN', KEYS[3])
local from = math.max(0, head.after - first)
answer[5], answer[6], answer[7] = first, h[2], redis.call('GET', KEYS[4])
answer[8] = redis.call('LRANGE', KEYS[3], from, from + head.limit - 1)
return answer
