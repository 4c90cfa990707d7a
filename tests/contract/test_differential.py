"""The same random history on memory and on SQLite gives the same answers, records and journals."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indoubt.store import (
    ANY_TENANT,
    KEEP,
    Absent,
    Batch,
    Becomes,
    Delete,
    DueQuery,
    Extend,
    Free,
    Guard,
    In,
    Lane,
    Lease,
    Put,
    ScanQuery,
    Store,
    Stored,
    Version,
    View,
)
from indoubt.stores import open_store
from indoubt.testing.store_contract import SteeredClock

FAMILIES = {"root": ("root", "a", "b\0"), "other": ("other", "é")}
IDS = [name for family in FAMILIES.values() for name in family]
VIEWS: tuple[View, ...] = ("all", "ready", "doubt")
KINDS, STATES, TENANTS = ("effect", "run"), ("prepared", "in_doubt"), ("t1", "t2", None)
NOW = 1_800_000_000_000

HOWS = (
    *["new"] * 2,
    *["next"] * 3,
    "free",
    "stale",
    "late",
    "renew",
    "usurp",
    "delete",
    "bury",
    "delete stale",
)

times = st.sampled_from([None, 5, NOW, NOW + 4_000, In(0), In(-3_000), In(9_000)])
kept = st.one_of(times, st.just(KEEP))


class Step(NamedTuple):
    """Time passes; the wall clock may also be set back."""

    wall: int
    boot: int


class Draft(NamedTuple):
    """A batch whose versions, fences and leases are looked up when its turn comes."""

    root: str
    changes: tuple[tuple[str, str, dict[str, Any]], ...]
    guard: str | None


class Repeat(NamedTuple):
    """An earlier batch once more."""

    back: int


class Ask(NamedTuple):
    """A question, as (method, arguments)."""

    what: str
    values: tuple[Any, ...]


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    root = draw(st.sampled_from(sorted(FAMILIES)))
    ids = draw(st.lists(st.sampled_from(FAMILIES[root]), max_size=3, unique=True))
    hows = st.sampled_from(HOWS)
    changes = tuple((name, draw(hows), draw(fields())) for name in ids)
    guards = st.sampled_from([None, None, "holds", "old", "not cancelled"])
    return Draft(root, changes, draw(guards))


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    small = st.integers(0, 3)
    kind = draw(st.sampled_from(KINDS))
    return {
        "tenant_id": draw(st.sampled_from(TENANTS)),
        "parent_id": draw(st.sampled_from(["p", None])),
        "kind": kind,
        "state": draw(st.sampled_from(STATES)),
        "owner": draw(st.sampled_from(["o1", "o2", None])),
        "fence": draw(small),
        "claims": draw(small),
        "attempt": draw(small),
        "cancel_requested": draw(st.booleans()),
        "store_epoch": draw(small),
        "lease_until": draw(kept),
        "permit_until": draw(kept),
        "ready_at": draw(kept),
        "dispatched_at": draw(kept),
        "doubt_since": draw(kept),
        "body": draw(st.one_of(st.none(), st.binary(max_size=3))),
        "fixed": draw(st.one_of(st.none(), st.binary(max_size=3))),
        "event": draw(st.binary(max_size=3)),
        "queue": draw(st.sampled_from(["", f"{kind}:mail"])),
    }


def asks() -> st.SearchStrategy[Ask]:
    filters = st.builds(
        ScanQuery,
        view=st.sampled_from(["all", "ready", "doubt"]),
        kinds=st.sampled_from([(), ("run",), ("run", "effect")]),
        states=st.sampled_from([(), ("in_doubt",), STATES]),
        tenant_id=st.sampled_from([ANY_TENANT, *TENANTS]),
        parent_id=st.sampled_from([None, "p"]),
        limit=st.integers(1, 4),
    )
    lanes = st.one_of(st.none(), st.builds(Lane, st.integers(0, 1), st.just(2)))
    quotas = st.sampled_from(
        [(("run", 2),), (("effect", 1), ("run", 3)), (("effect:mail", 2), ("effect", 9))]
    )
    due = st.builds(DueQuery, quotas, lanes)
    back = Becomes("in_doubt", "prepared", sent=False)
    becomes = st.sampled_from([(), (Becomes("prepared", "in_doubt", sent=True), back)])
    lengths = st.sampled_from([1, 4_000])
    leases = st.builds(
        Lease, st.sampled_from(["o1", "o2"]), lengths, lengths, becomes, st.just("l"), st.just(b"l")
    )
    return st.one_of(
        st.builds(Ask, st.just("scan"), st.tuples(filters)),
        st.builds(Ask, st.just("due"), st.tuples(due)),
        st.builds(Ask, st.just("lease"), st.tuples(due, leases)),
        st.builds(Ask, st.just("queues"), st.tuples(st.sampled_from(["", "effect", "x"]))),
        st.builds(Ask, st.just("read"), st.tuples(st.lists(st.sampled_from(IDS), max_size=4))),
    )


steps = st.builds(Step, st.sampled_from([0, 1, 5_000, -7_000]), st.sampled_from([0, 1, 5_000]))
writes = st.lists(drafts(), min_size=1, max_size=3)
histories = st.lists(
    st.one_of(writes, writes, steps, asks(), st.builds(Repeat, st.integers(1, 6))), max_size=30
)


@given(histories)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
def test_memory_and_sqlite_answer_alike(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_alike(history, folder))


async def check_alike(history: list[Any], folder: str) -> None:
    clocks = SteeredClock(), SteeredClock()
    stores = (
        open_store("memory:", clock=clocks[0]),
        open_store(f"sqlite:///{folder}/ledger.db", clock=clocks[1]),
    )
    for store in stores:  # time starts for a store when it is first looked at
        await store.read([])
    written: list[Batch] = []
    for act in history:
        if isinstance(act, Step):
            for clock in clocks:
                clock.step(act.wall, act.boot)
        elif isinstance(act, Ask):
            same(*[await outcome(getattr(store, act.what)(*act.values)) for store in stores])
        else:
            batches = await resolved(act, stores[0], written)
            written += batches
            same(*[await outcome(store.write(batches)) for store in stores])
    same(*[await everything(store) for store in stores])
    for store in stores:
        await store.close()


def same(memory: object, sqlite: object) -> None:
    assert sqlite == memory


async def outcome(answer: Any) -> object:
    """What a caller gets; a cursor only as "there is more", since it names its store."""
    try:
        found = await answer
    except ValueError as error:
        return str(error)
    return found._replace(cursor=bool(found.cursor)) if hasattr(found, "cursor") else list(found)


async def everything(store: Store) -> object:
    queries = [ScanQuery(view=view, limit=2) for view in VIEWS]
    views = [await listing(store, query) for query in queries]
    return views, [list(await store.journal(name, limit=1_000)) for name in IDS]


async def listing(store: Store, query: ScanQuery) -> list[Stored]:
    found: list[Stored] = []
    while True:
        page = await store.scan(query)
        found += page.records
        if page.cursor is None:
            return found
        query = query._replace(after=page.cursor)


async def resolved(act: Any, store: Store, written: list[Batch]) -> list[Batch]:
    if isinstance(act, Repeat):
        return written[-act.back :][:1]
    known = {record.id: record for record in (await store.read(IDS)).records}
    return [batch_of(draft, known, f"w{len(written) + n}") for n, draft in enumerate(act)]


def batch_of(draft: Draft, known: dict[str, Stored], write_id: str) -> Batch:
    changed = [change_of(draft.root, *change, known.get(change[0])) for change in draft.changes]
    flat = [item for items in changed for item in items]
    root = known.get(draft.root)
    fence = (root.fence if root else 0) - (draft.guard == "old")
    guard = Guard(draft.root, fence, not_cancelled=draft.guard == "not cancelled")
    return Batch(
        write_id,
        puts=tuple(item for item in flat if isinstance(item, Put)),
        extends=tuple(item for item in flat if isinstance(item, Extend)),
        guards=(guard,) if draft.guard else (),
        deletes=tuple(item for item in flat if isinstance(item, Delete)),
    )


def change_of(
    root: str, name: str, how: str, values: dict[str, Any], stored: Stored | None
) -> list[Put | Extend | Delete]:
    version = stored.version if stored else 1
    lease = stored.lease_until if stored else None
    if how in {"renew", "usurp"}:
        owner, fence = (stored.owner or "o", stored.fence) if stored else ("o", 0)
        moved = {key: values[key] for key in ("lease_until", "permit_until", "ready_at")}
        return [Extend(name, root, owner, fence + (how == "usurp"), **moved)]
    if how.startswith("delete"):
        return [Delete(name, root, version - (how == "delete stale"))]
    expected = {
        "next": Version(version),
        "free": Free(version, lease),
        "stale": Version(version - 1),
        "late": Free(version, (lease or 0) + 1),
    }.get(how, Absent())
    if isinstance(expected, Absent):
        values = {key: None if value is KEEP else value for key, value in values.items()}
    put = Put(id=name, root_id=root, expected=expected, **values)
    return [Delete(name, root, version), put] if how == "bury" else [put]
