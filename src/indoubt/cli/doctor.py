"""``indoubt doctor``: what this ledger really promises, here and now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from . import options
from .access import Reached, now_of, reach
from .edge import command
from .exits import Exit
from .output import Output
from .wording import ago

if TYPE_CHECKING:
    from indoubt.recovery.items import RecordView
    from indoubt.store import Capabilities

COUNTED_MAX = 1_000
"""Doubts are counted so far; beyond it, 'more than' is all an operator needs to know."""
PAGE = 100
WAIT_MS = 30_000
"""How long a call and ``recover`` wait unless they are told otherwise."""
MARKS = {"fine": "  ", "note": "- ", "bad": "! "}
SILENCE = {True: "fine", False: "note"}
SECRETS = frozenset({"user", "password", "passfile", "sslkey", "sslpassword"})
STYLES = {"fine": None, "note": "yellow", "bad": "bold red"}


class Finding(NamedTuple):
    """One line of the report; the stores' own findings have the same shape."""

    name: str
    value: Any
    words: str
    level: str = "fine"

    def value_and_words(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"value": self.value, "level": self.level, "words": self.words}


@command
async def doctor(
    *,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> Exit:
    """Say what this ledger really promises here: durable or not, who can be proven dead, clocks.

    It reads, and measures the disk with a small file beside the ledger, which it removes. It never
    changes the ledger, and repairs nothing. Exit code 1 where something is bad (marked !). With
    --app the effects of your program are looked at too.

    Example:
      indoubt doctor --store sqlite:///app.db --app shop.app:ledger
    """
    output = Output(as_json=as_json)
    async with reach(store, tenant, app) as reached:
        with output.progress("measuring") as tell:
            tell("the store")
            findings = await _of_store(reached)
            tell("what is in doubt")
            findings += await _of_doubts(reached)
            findings += _of_effects(reached) if app else []
    bad = [finding for finding in findings if finding.level == "bad"]
    output.document(
        {
            "store": app or shown_url(store or ""),
            "ok": not bad,
            "findings": {found.name: found.value_and_words() for found in findings},
        }
    )
    for found in findings:
        line = f"{MARKS[found.level]}{found.name:<12} {found.words}"
        output.line(line, style=STYLES[found.level])
    return Exit.ERROR if bad else Exit.DONE


def shown_url(url: str) -> str:
    """A URL without the user and the secrets that may stand in it."""
    parts = urlsplit(url)
    if not parts.netloc:
        return url
    pairs = [pair for pair in parts.query.split("&") if pair.partition("=")[0] not in SECRETS]
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="&".join(pairs)))


async def _of_store(reached: Reached) -> list[Finding]:
    from indoubt import stores  # noqa: PLC0415 - engines load when one is opened

    store = reached.ledger.open().store
    measured = await asyncio.to_thread(stores.facts_of, store)
    return [*_capabilities(store.capabilities), *[Finding(*fact) for fact in measured]]


def _capabilities(able: Capabilities) -> list[Finding]:
    durable = f"{'yes' if able.durable else 'no'}: {able.durable_why}"
    silence = (
        "yes: a lock tells when an owner's process is dead"
        if able.decides_silence
        else "no: only a lease ends a dead owner's hold, and absence is at best assumed"
    )
    shared = "several processes may use it" if able.shared else "one process only"
    return [
        Finding("durable", able.durable, durable, "fine" if able.durable else "bad"),
        Finding(
            "silence", able.decides_silence, silence, "fine" if able.decides_silence else "note"
        ),
        Finding("shared", able.shared, shared),
    ]


async def _of_doubts(reached: Reached) -> list[Finding]:
    items, more = await _doubts(reached)
    if not items:
        return [Finding("in_doubt", {"count": 0}, "nothing is in doubt")]
    now = await now_of(reached)
    oldest = min(item.since for item in items)
    people = sum(item.state == "awaiting_decision" or bool(item.contradicted) for item in items)
    value = {"count": len(items), "more": more, "for_people": people, "oldest": oldest.isoformat()}
    count = f"more than {len(items)}" if more else str(len(items))
    words = f"{count}, {people} of them for a person, the oldest for {ago(now - oldest)}"
    return [Finding("in_doubt", value, f"{words}: see indoubt inbox", "note")]


async def _doubts(reached: Reached) -> tuple[list[RecordView], bool]:
    """Those that are in doubt, up to a bound, and whether there are more."""
    items: list[RecordView] = []
    cursor: str | None = None
    while len(items) < COUNTED_MAX:
        page = await reached.ledger.in_doubt(tenant_id=reached.tenant, limit=PAGE, cursor=cursor)
        items += page.items
        cursor = page.cursor
        if cursor is None:
            break
    return items, cursor is not None


def _of_effects(reached: Reached) -> list[Finding]:
    """Effects whose absence takes longer to prove than anybody waits (protocol head, line 7)."""
    settle = {known.name: known.policy.settle_ms for known in reached.ledger.effects}
    slow = sorted(name for name, ms in settle.items() if ms is not None and ms > WAIT_MS)
    value = {"registered": len(settle), "settle_longer_than_wait": slow}
    if not slow:
        return [Finding("effects", value, f"{len(settle)} registered, none settles too slowly")]
    words = (
        f"{', '.join(slow)}: settle_time is longer than the {WAIT_MS // 1000} s that a call and"
        " recover wait, so only a process that lives longer proves absence"
    )
    return [Finding("effects", value, words, "note")]
