-- One ledger. Only indoubt writes here; reading is welcome. Times are milliseconds since 1970 on the
-- store's own clock. Text is kept with NUL as \1\1 and \1 as \1\2 (PostgreSQL knows no NUL), which
-- keeps its order, and is compared by code points.

CREATE TABLE indoubt_meta(
  one integer PRIMARY KEY CHECK (one = 1),
  format integer NOT NULL,      -- of the records' bodies
  incarnation text NOT NULL,    -- random: this store and no other
  epoch bigint NOT NULL,        -- rises when a backup was put back
  scheme text NOT NULL,         -- how ids and fingerprints are made
  partitions integer NOT NULL,
  ahead_ms bigint NOT NULL      -- of the server's wall clock, which was set back by so much
);

-- n is small and its order is that of insertion; id is a hash.
CREATE TABLE indoubt_record(
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  hash bigint NOT NULL,         -- crc32 of the id: what lanes share out by
  id text COLLATE "C" NOT NULL UNIQUE,
  root_id text COLLATE "C" NOT NULL,
  tenant_id text COLLATE "C",
  parent_id text COLLATE "C",
  kind text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL, -- which listing it is due in: its kind, or its kind:more
  version bigint NOT NULL,
  state text COLLATE "C" NOT NULL,
  owner text COLLATE "C",
  fence bigint NOT NULL,
  claims bigint NOT NULL,
  attempt bigint NOT NULL,
  cancel_requested boolean NOT NULL,
  store_epoch bigint NOT NULL,
  lease_until bigint,
  permit_until bigint,
  ready_at bigint,
  dispatched_at bigint,
  doubt_since bigint,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  body bytea NOT NULL,
  fixed bytea NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX indoubt_record_ready ON indoubt_record(queue, ready_at, id)
  WHERE ready_at IS NOT NULL;
CREATE INDEX indoubt_record_doubt ON indoubt_record(doubt_since, id)
  WHERE doubt_since IS NOT NULL;
CREATE INDEX indoubt_record_tenant_doubt ON indoubt_record(tenant_id, doubt_since, id)
  WHERE doubt_since IS NOT NULL;
CREATE INDEX indoubt_record_parent ON indoubt_record(parent_id, n) WHERE parent_id IS NOT NULL;

CREATE TABLE indoubt_journal(
  n bigint NOT NULL,
  version bigint NOT NULL,
  at bigint NOT NULL,
  write_id text COLLATE "C" NOT NULL,
  event bytea NOT NULL,
  PRIMARY KEY (n, version)
);

-- The newest time given out. A sequence: to move it locks no row, so commits do not queue for it.
CREATE SEQUENCE indoubt_clock MINVALUE 0 START 0;

CREATE FUNCTION indoubt_wall() RETURNS bigint LANGUAGE sql VOLATILE AS
  $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The store's time: the wall clock, made monotone. Where the wall was set back, time goes on from
-- the newest one given out. Sessions that race for the same millisecond get the later one.
CREATE FUNCTION indoubt_now(persist boolean) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  wall bigint := indoubt_wall();
  latest bigint;
  ahead bigint;
BEGIN
  SELECT last_value INTO latest FROM indoubt_clock;
  SELECT ahead_ms INTO ahead FROM indoubt_meta;
  IF wall >= latest THEN
    IF persist AND ahead <> 0 THEN
      UPDATE indoubt_meta SET ahead_ms = 0;
    END IF;
  ELSIF wall + ahead >= latest THEN
    wall := wall + ahead;
  ELSIF latest - (wall + ahead) < 1000 THEN
    RETURN latest;
  ELSE
    IF persist THEN
      UPDATE indoubt_meta SET ahead_ms = latest - wall;
    END IF;
    RETURN latest;
  END IF;
  IF persist THEN
    PERFORM setval('indoubt_clock', wall);
  END IF;
  RETURN wall;
END $$;

-- A store that is open while a newer version upgrades its schema must notice.
CREATE FUNCTION indoubt_schema() RETURNS integer LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$ SELECT max(number) FROM indoubt_migration $$;

CREATE TYPE indoubt_put AS (
  id text, root_id text, tenant_id text, parent_id text, kind text, queue text, hash bigint,
  expect text, n bigint, lease bigint, state text, owner text, fence bigint, claims bigint,
  attempt bigint, cancel_requested boolean, store_epoch bigint,
  lease_until bigint, lease_how integer, permit_until bigint, permit_how integer,
  ready_at bigint, ready_how integer, dispatched_at bigint, dispatched_how integer,
  doubt_since bigint, doubt_how integer,
  body text, fixed text, event text
);
CREATE TYPE indoubt_extend AS (
  id text, owner text, fence bigint, lease_until bigint, lease_how integer,
  permit_until bigint, permit_how integer, ready_at bigint, ready_how integer
);
CREATE TYPE indoubt_answer AS (
  written boolean, repeated boolean, superseded boolean, bad text, why text, known jsonb
);

-- how: 0 as given, 1 the store's clock plus it, 2 as stored
CREATE FUNCTION indoubt_stamp(given bigint, how integer, now_at bigint, stored bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS
  $$ SELECT CASE how WHEN 1 THEN now_at + given WHEN 2 THEN stored ELSE given END $$;

CREATE FUNCTION indoubt_put_one(p indoubt_put, landed bigint, now_at bigint, by_write text)
RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  at_n bigint;
BEGIN
  IF p.expect = 'absent' THEN
    INSERT INTO indoubt_record(hash, id, root_id, tenant_id, parent_id, kind, queue, version, state,
      owner, fence, claims, attempt, cancel_requested, store_epoch, lease_until, permit_until,
      ready_at, dispatched_at, doubt_since, created_at, updated_at, body, fixed)
    VALUES (p.hash, p.id, p.root_id, p.tenant_id, p.parent_id, p.kind, p.queue, landed, p.state,
      p.owner, p.fence, p.claims, p.attempt, p.cancel_requested, p.store_epoch,
      indoubt_stamp(p.lease_until, p.lease_how, now_at, NULL),
      indoubt_stamp(p.permit_until, p.permit_how, now_at, NULL),
      indoubt_stamp(p.ready_at, p.ready_how, now_at, NULL),
      indoubt_stamp(p.dispatched_at, p.dispatched_how, now_at, NULL),
      indoubt_stamp(p.doubt_since, p.doubt_how, now_at, NULL),
      now_at, now_at, coalesce(decode(p.body, 'base64'), ''), coalesce(decode(p.fixed, 'base64'), ''))
    ON CONFLICT (id) DO NOTHING RETURNING n INTO at_n;
  ELSE
    UPDATE indoubt_record r SET version = r.version + 1, state = p.state, owner = p.owner,
      fence = p.fence, claims = p.claims, attempt = p.attempt,
      cancel_requested = p.cancel_requested, store_epoch = p.store_epoch,
      lease_until = indoubt_stamp(p.lease_until, p.lease_how, now_at, r.lease_until),
      permit_until = indoubt_stamp(p.permit_until, p.permit_how, now_at, r.permit_until),
      ready_at = indoubt_stamp(p.ready_at, p.ready_how, now_at, r.ready_at),
      dispatched_at = indoubt_stamp(p.dispatched_at, p.dispatched_how, now_at, r.dispatched_at),
      doubt_since = indoubt_stamp(p.doubt_since, p.doubt_how, now_at, r.doubt_since),
      updated_at = now_at, body = coalesce(decode(p.body, 'base64'), r.body)
    WHERE r.id = p.id AND r.version = p.n
      AND (p.expect = 'version' OR r.lease_until IS NOT DISTINCT FROM p.lease)
    RETURNING r.n INTO at_n;
  END IF;
  IF at_n IS NULL THEN
    RETURN false;
  END IF;
  INSERT INTO indoubt_journal VALUES (at_n, landed, now_at, by_write, decode(p.event, 'base64'));
  RETURN true;
END $$;

-- Which item forbids this batch, and why: guards, deletes, puts, extends, each as listed.
CREATE FUNCTION indoubt_refusal(batch jsonb, OUT bad text, OUT why text) LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  item jsonb;
  h indoubt_record%ROWTYPE;
BEGIN
  FOR item IN SELECT * FROM jsonb_array_elements(batch->'guards') LOOP
    bad := item->>'id';
    SELECT * INTO h FROM indoubt_record WHERE id = bad;
    why := CASE WHEN NOT FOUND THEN 'missing'
      WHEN h.fence <> (item->>'fence')::bigint THEN 'fence'
      WHEN (item->>'not_cancelled')::boolean AND h.cancel_requested THEN 'cancelled' END;
    IF why IS NOT NULL THEN RETURN; END IF;
  END LOOP;
  FOR item IN SELECT * FROM jsonb_array_elements(batch->'deletes') LOOP
    bad := item->>'id';
    SELECT * INTO h FROM indoubt_record WHERE id = bad;
    why := CASE WHEN NOT FOUND THEN 'missing'
      WHEN h.version <> (item->>'version')::bigint THEN 'version' END;
    IF why IS NOT NULL THEN RETURN; END IF;
  END LOOP;
  FOR item IN SELECT * FROM jsonb_array_elements(batch->'puts') LOOP
    bad := item->>'id';
    SELECT * INTO h FROM indoubt_record WHERE id = bad
      AND NOT EXISTS (SELECT FROM jsonb_array_elements(batch->'deletes') d WHERE d->>'id' = bad);
    why := CASE
      WHEN item->>'expect' = 'absent' THEN CASE WHEN FOUND THEN 'exists' END
      WHEN NOT FOUND THEN 'missing'
      WHEN h.version <> (item->>'n')::bigint THEN 'version'
      WHEN item->>'expect' = 'free'
        AND h.lease_until IS DISTINCT FROM (item->>'lease')::bigint THEN 'lease' END;
    IF why IS NOT NULL THEN RETURN; END IF;
  END LOOP;
  FOR item IN SELECT * FROM jsonb_array_elements(batch->'extends') LOOP
    bad := item->>'id';
    SELECT * INTO h FROM indoubt_record WHERE id = bad;
    why := CASE WHEN NOT FOUND THEN 'missing'
      WHEN h.owner IS DISTINCT FROM item->>'owner' OR h.fence <> (item->>'fence')::bigint
        THEN 'held' END;
    IF why IS NOT NULL THEN RETURN; END IF;
  END LOOP;
  bad := NULL;
END $$;

CREATE FUNCTION indoubt_apply(batch jsonb, now_at bigint) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  item jsonb;
  e indoubt_extend;
  at_n bigint;
BEGIN
  FOR item IN SELECT * FROM jsonb_array_elements(batch->'deletes') LOOP
    DELETE FROM indoubt_record WHERE id = item->>'id' RETURNING n INTO at_n;
    DELETE FROM indoubt_journal WHERE n = at_n;
  END LOOP;
  FOR item IN SELECT * FROM jsonb_array_elements(batch->'puts') LOOP
    IF NOT indoubt_put_one(jsonb_populate_record(NULL::indoubt_put, item),
        (item->>'landed')::bigint, now_at, batch->>'write_id') THEN
      -- Another session's insert became visible after we had looked: none of the batch is written.
      RAISE EXCEPTION 'lost to another insert' USING ERRCODE = 'IDB01';
    END IF;
  END LOOP;
  FOR e IN SELECT * FROM jsonb_populate_recordset(NULL::indoubt_extend, batch->'extends') LOOP
    UPDATE indoubt_record r SET
      lease_until = indoubt_stamp(e.lease_until, e.lease_how, now_at, r.lease_until),
      permit_until = indoubt_stamp(e.permit_until, e.permit_how, now_at, r.permit_until),
      ready_at = indoubt_stamp(e.ready_at, e.ready_how, now_at, r.ready_at)
    WHERE r.id = e.id;
  END LOOP;
END $$;

-- A refused batch: did this very write land before? Else what is stored now, and why it is refused.
CREATE FUNCTION indoubt_refused(batch jsonb) RETURNS indoubt_answer LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  answer indoubt_answer;
BEGIN
  SELECT bool_or(j.write_id IS NOT NULL),
    bool_or(r.version IS DISTINCT FROM (p->>'landed')::bigint)
  INTO answer.repeated, answer.superseded
  FROM jsonb_array_elements(batch->'puts') p
  LEFT JOIN indoubt_record r ON r.id = p->>'id'
  LEFT JOIN indoubt_journal j ON j.n = r.n AND j.version = (p->>'landed')::bigint
    AND j.write_id = batch->>'write_id'
    AND r.version BETWEEN (p->>'landed')::bigint AND (p->>'landed')::bigint + 3;
  IF answer.repeated THEN
    answer.written := true;
    RETURN answer;
  END IF;
  answer.written := false;
  SELECT * INTO answer.bad, answer.why FROM indoubt_refusal(batch);
  SELECT coalesce(jsonb_object_agg(r.id, to_jsonb(r)), '{}') INTO answer.known
  FROM indoubt_record r WHERE r.id IN (
    SELECT i->>'id' FROM jsonb_array_elements(batch->'puts') i UNION
    SELECT i->>'id' FROM jsonb_array_elements(batch->'extends') i UNION
    SELECT i->>'id' FROM jsonb_array_elements(batch->'guards') i);
  RETURN answer;
END $$;

CREATE FUNCTION indoubt_batch(batch jsonb, now_at bigint) RETURNS indoubt_answer LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  answer indoubt_answer;
  item jsonb := batch->'put';
BEGIN
  answer.written := true;
  IF item IS NOT NULL THEN -- alone: its own WHERE is the check
    IF indoubt_put_one(jsonb_populate_record(NULL::indoubt_put, item),
        (item->>'landed')::bigint, now_at, batch->>'write_id') THEN
      RETURN answer;
    END IF;
    RETURN indoubt_refused(batch || jsonb_build_object('puts', jsonb_build_array(item)));
  END IF;
  IF (SELECT why FROM indoubt_refusal(batch)) IS NULL THEN
    BEGIN
      PERFORM indoubt_apply(batch, now_at);
      RETURN answer;
    EXCEPTION WHEN SQLSTATE 'IDB01' THEN NULL;
    END;
  END IF;
  RETURN indoubt_refused(batch);
END $$;

-- Each batch by itself, all in one transaction. The rows they name are locked in order, so that
-- groups of several sessions do not wait for one another in a circle.
CREATE FUNCTION indoubt_write(work jsonb)
RETURNS TABLE (now_ms bigint, epoch bigint, schema integer, written boolean, repeated boolean,
  superseded boolean, bad text, why text, known jsonb) LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  batch jsonb;
  topic text;
BEGIN
  schema := indoubt_schema();
  SELECT m.epoch INTO epoch FROM indoubt_meta m;
  IF schema > (work->>'schema')::integer THEN -- this client does not know what it would write
    RETURN NEXT;
    RETURN;
  END IF;
  now_ms := indoubt_now(true);
  IF jsonb_array_length(work->'ids') > 0 THEN
    PERFORM FROM indoubt_record r
    WHERE r.id = ANY (ARRAY(SELECT jsonb_array_elements_text(work->'ids'))) ORDER BY r.id FOR UPDATE;
  END IF;
  FOR batch IN SELECT * FROM jsonb_array_elements(work->'batches') LOOP
    SELECT a.written, a.repeated, a.superseded, a.bad, a.why, a.known
    INTO written, repeated, superseded, bad, why, known FROM indoubt_batch(batch, now_ms) a;
    IF written THEN
      FOR topic IN SELECT * FROM jsonb_array_elements_text(batch->'wakes') LOOP
        PERFORM pg_notify('indoubt', topic);
      END LOOP;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Take what is due: ownership, and the state as becomes says ({before: [after, sent]}).
CREATE FUNCTION indoubt_lease(asked jsonb) RETURNS SETOF indoubt_record LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  now_at bigint := indoubt_now(true);
  quota jsonb;
  taken indoubt_record%ROWTYPE;
  become jsonb;
  sent boolean;
BEGIN
  FOR quota IN SELECT * FROM jsonb_array_elements(asked->'quotas') LOOP
    FOR taken IN
      SELECT * FROM indoubt_record r
      WHERE r.queue = quota->>0 AND r.ready_at IS NOT NULL AND r.ready_at <= now_at
        AND r.hash % (asked->>'count')::bigint = (asked->>'index')::bigint
      ORDER BY r.ready_at, r.id LIMIT (quota->>1)::integer FOR UPDATE SKIP LOCKED
    LOOP
      become := asked->'becomes'->taken.state;
      sent := coalesce((become->>1)::boolean, false);
      UPDATE indoubt_record r SET version = r.version + 1, owner = asked->>'owner',
        fence = r.fence + 1, claims = r.claims + 1,
        lease_until = now_at + (asked->>'lease_ms')::bigint,
        ready_at = now_at + (asked->>'lease_ms')::bigint,
        state = coalesce(become->>0, r.state), attempt = r.attempt + sent::integer,
        dispatched_at = CASE WHEN sent THEN now_at ELSE r.dispatched_at END,
        permit_until = CASE WHEN sent THEN now_at + (asked->>'permit_ms')::bigint
          ELSE r.permit_until END,
        doubt_since = CASE WHEN become IS NULL THEN r.doubt_since WHEN sent THEN NULL
          ELSE now_at END,
        updated_at = now_at
      WHERE r.n = taken.n RETURNING * INTO taken;
      INSERT INTO indoubt_journal
      VALUES (taken.n, taken.version, now_at, asked->>'write_id', decode(asked->>'event', 'base64'));
      RETURN NEXT taken;
    END LOOP;
  END LOOP;
END $$;
