-- A schema that never was: what a version before the first could have written. It knows no doubt
-- and no dispatch times, and has the indexes of that time.
CREATE TABLE meta(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  format INTEGER NOT NULL,
  incarnation TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  scheme TEXT NOT NULL,
  partitions INTEGER NOT NULL,
  now_ms INTEGER NOT NULL,
  boot_ms INTEGER NOT NULL,
  boot TEXT NOT NULL
) STRICT;
CREATE TABLE record(
  n INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,
  id TEXT NOT NULL UNIQUE,
  root_id TEXT NOT NULL,
  tenant_id TEXT,
  parent_id TEXT,
  kind TEXT NOT NULL,
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
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  body BLOB NOT NULL,
  fixed BLOB NOT NULL
) STRICT;
CREATE INDEX record_ready ON record(ready_at) WHERE ready_at IS NOT NULL;
CREATE TABLE journal(
  n INTEGER NOT NULL,
  version INTEGER NOT NULL,
  at INTEGER NOT NULL,
  write_id TEXT NOT NULL,
  event BLOB NOT NULL,
  PRIMARY KEY (n, version)
) STRICT, WITHOUT ROWID;
