"""No question touches more rows than its page has, however long the backlog behind it.

The server itself reports every plan as it ran, those inside our functions too (``auto_explain``),
under generic plans: what a long-lived connection comes to.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import psycopg
import pytest
from tests.servers.fixtures import postgres, postgres_versions

from indoubt.store import DueQuery, Lane, Lease, ScanQuery, Version
from indoubt.stores.postgres.place import Place
from indoubt.stores.postgres.store import PostgresStore
from indoubt.testing.store_contract.examples import answered, batch, put

ROWS, LIMIT = 100_000, 50
BOUND = 4 * LIMIT
"""A page of each of two queues, a row more to know whether there are others, and the lanes."""
TABLES = {"indoubt_record", "indoubt_journal"}
QUEUES = ("effect:mail", "run")
LEASE = Lease("w", 1_000, 1_000, (), "leasing", b"{}")
SETTINGS = {
    "session_preload_libraries": "auto_explain",
    "plan_cache_mode": "force_generic_plan",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
}
FILL = f"""
INSERT INTO indoubt_record(hash, id, root_id, tenant_id, parent_id, kind, queue, version, state,
  fence, claims, attempt, cancel_requested, store_epoch, ready_at, doubt_since, created_at,
  updated_at, body, fixed)
SELECT n * 7919 % 4294967296, 'rec_' || lpad(n::text, 7, '0'), 'root', 'tenant-' || n % 3,
  'parent-' || n % 500, CASE n % 2 WHEN 0 THEN 'effect' ELSE 'run' END,
  CASE n % 2 WHEN 0 THEN 'effect:mail' ELSE 'run' END, 2, 'prepared', 0, 0, 0, false, 1,
  CASE WHEN n % 4 < 2 THEN n END, CASE WHEN n % 4 > 1 THEN n END, n, n, '{{}}', '{{}}'
FROM generate_series(1, {ROWS}) n;
INSERT INTO indoubt_journal
SELECT r.n, v, r.n, 'write-' || r.n, '{{}}' FROM indoubt_record r, generate_series(1, 2) v
"""  # noqa: S608 - a constant
ASKED: dict[str, Callable[[PostgresStore], Awaitable[Any]]] = {
    "read": lambda s: s.read([f"rec_{n:07}" for n in range(1, LIMIT)]),
    "due": lambda s: s.due(DueQuery(tuple([(queue, LIMIT) for queue in QUEUES]))),
    "due in a lane": lambda s: s.due(DueQuery((("run", LIMIT),), Lane(1, 2))),
    "lease": lambda s: s.lease(DueQuery(tuple([(queue, LIMIT) for queue in QUEUES])), LEASE),
    "lease in a lane": lambda s: s.lease(DueQuery((("run", LIMIT),), Lane(1, 2)), LEASE),
    "queues": lambda s: s.queues(""),
    "queues of a prefix": lambda s: s.queues("effect:"),
    "journal": lambda s: s.journal("rec_0000777"),
    "a new record": lambda s: answered(s, put("new")),
    "a record that is there": lambda s: answered(s, put("rec_0000005")),
    "a changed record": lambda s: answered(s, put("rec_0000009", expected=Version(2))),
    "a group": lambda s: s.write(
        [batch(put(f"rec_{n:07}", expected=Version(2))) for n in range(100, 100 + LIMIT)]
    ),
    "all": lambda s: two_pages(s, ScanQuery(limit=LIMIT)),
    "children": lambda s: two_pages(s, ScanQuery(parent_id="parent-7", limit=LIMIT)),
    "beginning with": lambda s: two_pages(s, ScanQuery(id_prefix="rec_00", limit=LIMIT)),
    "ready": lambda s: two_pages(s, ScanQuery(view="ready", limit=LIMIT)),
    "ready of a kind": lambda s: two_pages(s, ScanQuery(view="ready", kinds=("run",), limit=LIMIT)),
    "doubt": lambda s: two_pages(s, ScanQuery(view="doubt", limit=LIMIT)),
    "doubt of a tenant": lambda s: two_pages(
        s, ScanQuery(view="doubt", tenant_id="tenant-1", limit=LIMIT)
    ),
}


class Touched(NamedTuple):
    """One node of one plan that ran: rows that came out of it, and rows it threw away."""

    node: str
    table: str
    rows: float


class Plans:
    """What the server said of every statement since ``clear``."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def hear(self, notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        if "plan:" in text:
            self.said.append(text.partition("plan:")[2])

    def touched(self) -> list[Touched]:
        return [node for text in self.said for node in nodes(json.loads(text)["Plan"])]


def nodes(plan: dict[str, Any]) -> Iterator[Touched]:
    rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    yield Touched(plan["Node Type"], plan.get("Relation Name", ""), rows * plan["Actual Loops"])
    for part in plan.get("Plans", ()):
        yield from nodes(part)


async def two_pages(store: PostgresStore, query: ScanQuery) -> None:
    """The first page, and the one after it."""
    page = await store.scan(query)
    assert len(page.records) == LIMIT
    await store.scan(query._replace(after=page.cursor))


@pytest.fixture(params=postgres_versions(), scope="module")
def url(request: pytest.FixtureRequest) -> Generator[str]:
    with postgres(str(request.param)).ledger() as made:
        with PostgresStore(made).place.connect() as db:
            db.execute(b"ALTER TABLE indoubt_record SET (autovacuum_enabled = off)")
            db.execute(FILL.encode(), prepare=False)
        yield made


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    heard = Plans()
    connect = Place.connect

    def listening(place: Place) -> psycopg.Connection[Any]:
        db = connect(place)
        db.add_notice_handler(heard.hear)
        return db

    monkeypatch.setattr(Place, "connect", listening)
    return heard


@pytest.fixture(params=[False, True], ids=["unknown to the planner", "analyzed"])
async def store(
    request: pytest.FixtureRequest, url: str, plans: Plans
) -> AsyncGenerator[PostgresStore]:
    assert plans
    options = quote(" ".join(f"-c {name}={value}" for name, value in SETTINGS.items()))
    made = PostgresStore(f"{url}&options={options}")
    if request.param:
        with made.place.connect() as db:
            db.execute(b"ANALYZE indoubt_record, indoubt_journal")
    yield made
    await made.close()


async def test_no_question_touches_more_than_its_page(store: PostgresStore, plans: Plans) -> None:
    wrong: dict[str, list[Touched]] = {}
    for name, ask in ASKED.items():
        plans.said.clear()
        await ask(store)
        touched = [node for node in plans.touched() if node.table in TABLES]
        assert touched, name
        wrong[name] = [node for node in touched if node.node == "Seq Scan" or node.rows > BOUND]
    assert {name: found for name, found in wrong.items() if found} == {}
