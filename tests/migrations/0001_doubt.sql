-- From the synthetic schema to the shipped one. What is in doubt is so since its last write.
ALTER TABLE record ADD COLUMN dispatched_at INTEGER;
ALTER TABLE record ADD COLUMN doubt_since INTEGER;
UPDATE record SET doubt_since = updated_at
  WHERE state IN ('in_doubt', 'awaiting_decision', 'permitted');
ALTER TABLE record ADD COLUMN queue TEXT NOT NULL DEFAULT '';
UPDATE record SET queue = kind;
DROP INDEX record_ready;
CREATE INDEX record_ready ON record(queue, ready_at, id, hash) WHERE ready_at IS NOT NULL;
CREATE INDEX record_doubt ON record(doubt_since, id) WHERE doubt_since IS NOT NULL;
CREATE INDEX record_tenant_doubt ON record(tenant_id, doubt_since, id)
  WHERE doubt_since IS NOT NULL;
CREATE INDEX record_parent ON record(parent_id, n) WHERE parent_id IS NOT NULL;
