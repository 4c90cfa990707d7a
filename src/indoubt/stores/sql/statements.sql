-- Every statement of the SQL stores. `-- name: x` begins one, `{y}` stands for the block y, `:z` is
-- a parameter: the loader numbers them by first appearance, so the order here is their order.

-- name: clock
-- The schema too: a store that is open while a newer version upgrades its file must notice.
SELECT now_ms, boot_ms, boot, epoch, (SELECT max(number) FROM migration) FROM meta WHERE one = 1

-- name: about
SELECT incarnation, epoch, scheme, partitions, now_ms FROM meta WHERE one = 1

-- name: states
-- Bounded: this is the one statement that walks through records, and only people ask for it.
SELECT state, count(*) FROM (SELECT state FROM record ORDER BY n DESC LIMIT :limit)
GROUP BY state ORDER BY state

-- name: tick
UPDATE meta SET now_ms = :now_ms, boot_ms = :boot_ms, boot = :boot WHERE one = 1

-- name: insert
INSERT INTO record(id, root_id, tenant_id, parent_id, kind, version, state, owner, fence, claims,
  attempt, cancel_requested, store_epoch, lease_until, permit_until, ready_at, dispatched_at,
  doubt_since, updated_at, created_at, body, fixed, hash, queue)
VALUES (:id, :root_id, :tenant_id, :parent_id, :kind, :version, :state, :owner, :fence, :claims,
  :attempt, :cancel_requested, :store_epoch, :lease_until, :permit_until, :ready_at, :dispatched_at,
  :doubt_since, :now, :now, :body, :fixed, :hash, :queue)
ON CONFLICT (id) DO NOTHING RETURNING n

-- name: moved
-- What changes with a version; a bit of :keep leaves the stored time as it is. Identity (root,
-- tenant, parent, kind, queue) and the fixed part are written once.
UPDATE record SET version = version + 1, state = :state, owner = :owner, fence = :fence,
  claims = :claims, attempt = :attempt, cancel_requested = :cancel_requested,
  store_epoch = :store_epoch,
  lease_until = CASE WHEN :keep & 1 THEN lease_until ELSE :lease_until END,
  permit_until = CASE WHEN :keep & 2 THEN permit_until ELSE :permit_until END,
  ready_at = CASE WHEN :keep & 4 THEN ready_at ELSE :ready_at END,
  dispatched_at = CASE WHEN :keep & 8 THEN dispatched_at ELSE :dispatched_at END,
  doubt_since = CASE WHEN :keep & 16 THEN doubt_since ELSE :doubt_since END,
  updated_at = :now, body = coalesce(:body, body)
WHERE id = :id AND version = :version

-- name: update
{moved} RETURNING n

-- name: update_free
-- A renewal steps no version: who ends a hold must have seen its last one.
{moved} AND lease_until IS NOT DISTINCT FROM :expected_lease RETURNING n

-- name: extend
UPDATE record SET
  lease_until = CASE WHEN :keep & 1 THEN lease_until ELSE :lease_until END,
  permit_until = CASE WHEN :keep & 2 THEN permit_until ELSE :permit_until END,
  ready_at = CASE WHEN :keep & 4 THEN ready_at ELSE :ready_at END
WHERE id = :id AND owner = :owner AND fence = :fence RETURNING n

-- name: take
-- Ownership, and where the claim is the dispatch (:dispatched) the new attempt. The caller names
-- the state, because it has just read the row under the same write lock.
UPDATE record SET version = version + 1, owner = :owner, fence = fence + 1, claims = claims + 1,
  lease_until = :lease_until, ready_at = :lease_until, state = :state,
  attempt = attempt + :sent,
  dispatched_at = CASE WHEN :sent THEN :now ELSE dispatched_at END,
  permit_until = CASE WHEN :sent THEN :permit_until ELSE permit_until END,
  doubt_since = :doubt_since, updated_at = :now
WHERE n = :n

-- name: append
INSERT INTO journal(n, version, at, write_id, event) VALUES (:n, :version, :at, :write_id, :event)

-- name: delete_record
DELETE FROM record WHERE n = :n

-- name: delete_journal
DELETE FROM journal WHERE n = :n

-- name: held
SELECT n, version, owner, fence, lease_until, cancel_requested FROM record WHERE id = :id

-- name: wrote
SELECT write_id FROM journal WHERE n = :n AND version = :version

-- name: columns
n, id, root_id, tenant_id, parent_id, kind, version, state, owner, fence, claims, attempt,
  cancel_requested, store_epoch, lease_until, permit_until, ready_at, dispatched_at, doubt_since,
  created_at, updated_at, body, fixed, queue

-- name: read
SELECT {columns} FROM record WHERE id = :id

-- name: due
-- One statement per queue: asked for several at once, the whole backlog would be sorted.
SELECT {columns} FROM record
WHERE queue = :queue AND ready_at IS NOT NULL AND ready_at <= :now
ORDER BY ready_at, id LIMIT :limit

-- name: due_lane
SELECT {columns} FROM record
WHERE queue = :queue AND ready_at IS NOT NULL AND ready_at <= :now AND hash % :count = :index
ORDER BY ready_at, id LIMIT :limit

-- name: journal
SELECT version, at, event FROM journal
WHERE n = (SELECT n FROM record WHERE id = :id) AND version > :after
ORDER BY version LIMIT :limit

-- name: filters
(:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:any_tenant OR tenant_id IS NOT DISTINCT FROM :tenant)
  AND (:parent IS NULL OR parent_id = :parent)

-- name: kinds
(:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))

-- name: scan_all
SELECT {columns} FROM record WHERE n > :after AND {kinds} AND {filters} ORDER BY n LIMIT :limit

-- name: scan_all_parent
SELECT {columns} FROM record
WHERE parent_id IS NOT NULL AND parent_id = :parent AND n > :after AND {kinds} AND {filters}
ORDER BY n LIMIT :limit

-- name: scan_prefix
-- One lower bound only: of two, the planner may take the one that starts at the first record.
SELECT {columns} FROM record
WHERE id >= :least AND id < :above AND id <> :after_id AND {kinds} AND {filters}
ORDER BY id LIMIT :limit

-- name: scan_ready
-- As `due`, one queue at a time.
SELECT {columns} FROM record
WHERE queue = :queue AND ready_at IS NOT NULL AND (ready_at, id) > (:after, :after_id) AND {kinds}
  AND {filters}
ORDER BY ready_at, id LIMIT :limit

-- name: queues
-- Hops from queue to queue through the index; DISTINCT would walk through all of it.
WITH RECURSIVE hop(queue) AS (
  SELECT min(queue) FROM record WHERE ready_at IS NOT NULL AND queue >= :prefix
  UNION ALL
  SELECT (SELECT min(queue) FROM record WHERE ready_at IS NOT NULL AND queue > hop.queue)
  FROM hop WHERE hop.queue < :above)
SELECT queue FROM hop WHERE queue < :above

-- name: scan_doubt
SELECT {columns} FROM record
WHERE doubt_since IS NOT NULL AND (doubt_since, id) > (:after, :after_id) AND {kinds} AND {filters}
ORDER BY doubt_since, id LIMIT :limit

-- name: scan_doubt_tenant
SELECT {columns} FROM record
WHERE tenant_id IS NOT DISTINCT FROM :tenant AND doubt_since IS NOT NULL
  AND (doubt_since, id) > (:after, :after_id) AND {kinds} AND {filters}
ORDER BY doubt_since, id LIMIT :limit
