-- What a partition says of itself. KEYS: meta.
return redis.call('HMGET', KEYS[1], 'schema', 'incarnation', 'scheme', 'partitions', 'epoch', 'whole')
