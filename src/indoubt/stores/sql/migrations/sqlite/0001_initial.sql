-- One ledger. Only indoubt writes here; reading is welcome: record and journal are documented.
-- Times are milliseconds since 1970 on the store's own clock (meta.now_ms).

CREATE TABLE meta(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  format INTEGER NOT NULL,      -- of the records' bodies
  incarnation TEXT NOT NULL,    -- random: this store and no other
  epoch INTEGER NOT NULL,       -- rises when a backup was put back
  scheme TEXT NOT NULL,         -- how ids and fingerprints are made
  partitions INTEGER NOT NULL,
  now_ms INTEGER NOT NULL,      -- the newest time given out with a write
  boot_ms INTEGER NOT NULL,     -- what the clock since boot said then
  boot TEXT NOT NULL            -- and which boot that was
) STRICT;

-- n is small and its order is that of insertion; id is a hash. Long values stand last, so that
-- reading the others does not walk through their pages.
CREATE TABLE record(
  n INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,        -- crc32 of the id: what lanes share out by
  id TEXT NOT NULL UNIQUE,
  root_id TEXT NOT NULL,
  tenant_id TEXT,
  parent_id TEXT,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,          -- which listing it is due in: its kind, or its kind:more
  version INTEGER NOT NULL,
  state TEXT NOT NULL,
  owner TEXT,
  fence INTEGER NOT NULL,
  claims INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  cancel_requested INTEGER NOT NULL,
  store_epoch INTEGER NOT NULL,
  lease_until INTEGER,
  permit_until INTEGER,
  ready_at INTEGER,
  dispatched_at INTEGER,
  doubt_since INTEGER,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  body BLOB NOT NULL,
  fixed BLOB NOT NULL
) STRICT;
-- The hash stands behind, so that a lane passes over the records of others without reading them.
CREATE INDEX record_ready ON record(queue, ready_at, id, hash) WHERE ready_at IS NOT NULL;
CREATE INDEX record_doubt ON record(doubt_since, id) WHERE doubt_since IS NOT NULL;
CREATE INDEX record_tenant_doubt ON record(tenant_id, doubt_since, id)
  WHERE doubt_since IS NOT NULL;
CREATE INDEX record_parent ON record(parent_id, n) WHERE parent_id IS NOT NULL;

-- Keyed by n, not by the hashed id: with a million records behind, that is half the work.
CREATE TABLE journal(
  n INTEGER NOT NULL,
  version INTEGER NOT NULL,
  at INTEGER NOT NULL,
  write_id TEXT NOT NULL,
  event BLOB NOT NULL,
  PRIMARY KEY (n, version)
) STRICT, WITHOUT ROWID;
