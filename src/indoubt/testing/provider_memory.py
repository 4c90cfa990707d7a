"""The fake provider's memory: one append-only file that outlives ``kill -9`` of its process.

What it promises: an effect is counted if and only if its line is in the file, and that line is
fsynced before anybody is told. A line torn by a kill is cut off at the next start, as if the
request had died with the process. `Memory` changes only by applying an event that has just been
written, and starting again applies the same events, so a restart cannot remember something else.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

Event = dict[str, Any]


class Journal:
    """Lines of JSON in one file, whole or not there."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it, and cut off a torn last line."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        whole = path.read_bytes().rpartition(b"\n")
        self.found: list[Event] = [json.loads(line) for line in whole[0].splitlines()]
        self._size = len(whole[0]) + len(whole[1])
        os.ftruncate(self._file, self._size)

    def write(self, events: list[Event], *, fsync: bool) -> None:
        """Append events in one piece, or end the process: who cannot remember must not answer."""
        text = "".join(json.dumps(event) + "\n" for event in events).encode()
        try:
            os.write(self._file, text)
            self._size += len(text)
            whole = os.fstat(self._file).st_size == self._size
            if whole and fsync:
                os.fsync(self._file)
        except OSError as broken:
            _end(str(broken))
        if not whole:
            _end("another process writes to its file")


class Memory:
    """Acts, effects, refusals and the request log, as the journal tells them."""

    def __init__(self, path: Path) -> None:
        """Read what an earlier process left."""
        self.acts: dict[str, Event] = {}
        self.due: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.requests: list[Event] = []
        self.mutations = 0
        self.skipped_ms = 0
        self.last_ms = 0
        self._by_idempotency_key: dict[str, Event] = {}
        self._journal = Journal(path)
        for event in self._journal.found:
            self._apply(event)
        self._journal.found.clear()

    # -- writing -----------------------------------------------------------------------------

    def accept(self, act: Event, now: int, *, late_ms: int | None) -> str:
        """Take an act on: its effect happens now, or `late_ms` later, whoever is gone by then."""
        act_id = f"act_{len(self.acts) + 1:06d}"
        made: Event = {"event": "accepted", "at_ms": now, "id": act_id, **act}
        if late_ms is None:
            self._record(made, _landed(act_id, now), fsync=True)
        else:
            self._record({**made, "due_ms": now + late_ms}, fsync=True)
        return act_id

    def land(self, now: int) -> None:
        """Let every effect happen whose time has come."""
        ready = sorted((due, act_id) for act_id, due in self.due.items() if due <= now)
        if ready:
            self._record(*(_landed(act_id, now) for _, act_id in ready), fsync=True)

    def refuse(self, act: Event, code: str, now: int) -> None:
        """Remember a refusal, for those who repeat the same idempotency key."""
        self._record({"event": "refused", "at_ms": now, "code": code, **act}, fsync=True)

    def skip(self, by_ms: int, now: int) -> None:
        """Put the clock forward, for this process and the ones after it."""
        self._record({"event": "skipped", "at_ms": now, "by_ms": by_ms}, fsync=True)

    def received(self, entry: Event) -> int:
        """Log a request before anything is done about it; returns its number."""
        number = len(self.requests) + 1
        self._record({"event": "request", "n": number, **entry}, fsync=False)
        return number

    def answered(self, number: int, did: list[str], answer: str) -> None:
        """Log what became of it."""
        self._record({"event": "answered", "n": number, "did": did, "answer": answer}, fsync=False)

    # -- reading -----------------------------------------------------------------------------

    def honoured(self, idempotency_key: str | None, now: int) -> Event | None:
        """The act or refusal that a repeated idempotency key stands for, while it is kept."""
        if idempotency_key is None:
            return None
        known = self._by_idempotency_key.get(idempotency_key)
        if known is None or (known["forget_ms"] is not None and now >= known["forget_ms"]):
            return None
        return known

    def visible(self, key: str | None, now: int) -> list[Event]:
        """The acts of a business key that reads may see by now, oldest first."""
        return [act for act in self.acts.values() if act["key"] == key and is_visible(act, now)]

    # -- the one way to change ---------------------------------------------------------------

    def _record(self, *events: Event, fsync: bool) -> None:
        self._journal.write(list(events), fsync=fsync)
        for event in events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        self.last_ms = max(self.last_ms, event.get("at_ms", 0))
        match event["event"]:
            case "accepted":
                self._keep(event)
                self.acts[event["id"]] = event
                self.due[event["id"]] = event.get("due_ms", 0)
            case "landed":
                act = self.acts[event["id"]]
                act["landed_ms"] = event["at_ms"]
                self.counts[act["key"]] += 1
                del self.due[event["id"]]
            case "refused":
                self._keep(event)
            case "skipped":
                self.skipped_ms += event["by_ms"]
            case "request":
                entry = {name: value for name, value in event.items() if name != "event"}
                self.requests.append({**entry, "did": [], "answer": None})
                self.mutations += event["mutates"]
            case _:
                number: int = event["n"]
                self.requests[number - 1] |= {"did": event["did"], "answer": event["answer"]}

    def _keep(self, event: Event) -> None:
        if event["idempotency_key"] is not None:
            self._by_idempotency_key[event["idempotency_key"]] = event


def is_visible(act: Event, now: int) -> bool:
    """Whether reads may see the act: its effect has happened, and its read lag is over."""
    return "landed_ms" in act and now >= act["landed_ms"] + act["hide_ms"]


def public(act: Event) -> dict[str, Any]:
    """An act as clients see it."""
    return {name: act[name] for name in ("id", "key", "idempotency_key", "amount")}


def same_request(one: Event, other: Event) -> bool:
    """Whether two requests under one idempotency key ask for the same thing."""
    return _content(one) == _content(other)


def _end(why: str) -> NoReturn:
    os.write(2, f"the fake provider lost its memory: {why}\n".encode())
    os._exit(74)


def _content(act: Event) -> str:
    return json.dumps([act["key"], act["amount"]], sort_keys=True)


def _landed(act_id: str, now: int) -> Event:
    return {"event": "landed", "id": act_id, "at_ms": now}
