"""What one PostgreSQL server really promises: read from it here and now, for ``indoubt doctor``."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import psycopg

from ..clock import SystemClock
from ..facts import Fact
from .faults import trouble
from .schema import schema_status

if TYPE_CHECKING:
    from .place import Connection, Place

_ASKED: Final = b"""
SELECT current_setting('server_version'), current_setting('fsync'),
  current_setting('synchronous_commit'), current_setting('full_page_writes'),
  current_setting('synchronous_standby_names'), pg_is_in_recovery(),
  (SELECT count(*) FROM pg_stat_replication), inet_client_port(),
  m.incarnation, m.epoch, m.ahead_ms, indoubt_wall()
FROM indoubt_meta m"""
_STEP_MS: Final = 2_000
"""Clocks that part by more than this are worth a word (protocol P5)."""


class _Told(NamedTuple):
    """One row of the server's."""

    version: str
    fsync: str
    commit: str
    full_pages: str
    standbys: str
    standby: bool
    attached: int
    port: int | None
    incarnation: str
    epoch: int
    ahead_ms: int
    wall_ms: int


def examine(place: Place) -> tuple[Fact, ...]:
    """Everything about one ledger's server.

    Raises:
        StoreBroken, StoreUnavailable: it cannot be read.
    """
    try:
        with place.connect() as db:
            told = _Told._make(db.execute(_ASKED).fetchall()[0])
            between = told.port not in {None, _own_port(db)}
    except psycopg.Error as error:
        raise trouble(error, place) from error
    return (
        _engine(told),
        _server(told, place),
        _log(told),
        _replication(told),
        _schema(place),
        _identity(told),
        _clock(told),
        _pooler(place, between=between),
    )


def _engine(told: _Told) -> Fact:
    value = {"name": "PostgreSQL", "version": told.version, "driver": psycopg.__version__}
    return Fact("engine", value, f"PostgreSQL {told.version} through psycopg {value['driver']}")


def _server(told: _Told, place: Place) -> Fact:
    value = {"schema": place.schema, "standby": told.standby}
    where = f"{place.shown}, schema {place.schema}" if place.schema else place.shown
    if told.standby:
        return Fact("server", value, f"{where}: a standby, which takes no writes", "bad")
    return Fact("server", value, where)


def _log(told: _Told) -> Fact:
    """The write-ahead log: what makes an answered write last."""
    value = {
        "fsync": told.fsync,
        "synchronous_commit": told.commit,
        "full_page_writes": told.full_pages,
    }
    words = ", ".join([f"{name}={setting}" for name, setting in value.items()])
    good = told.fsync == "on" and told.commit != "off" and told.full_pages == "on"
    return Fact("log", value, words, "fine" if good else "bad")


def _replication(told: _Told) -> Fact:
    waits = bool(told.standbys) and told.commit not in {"off", "local"}
    value = {
        "synchronous_standby_names": told.standbys,
        "attached": told.attached,
        "waited_for": waits,
    }
    if waits:
        return Fact("replication", value, f"a commit waits for a standby ({told.standbys})")
    if told.standbys:
        words = f"synchronous_commit={told.commit}: no commit waits for {told.standbys}"
        return Fact("replication", value, words, "note")
    if told.attached:
        words = f"{told.attached} attached, none waited for: a fail-over loses the newest writes"
        return Fact("replication", value, words, "note")
    return Fact("replication", value, "no standby: an answered write is on one machine's disk")


def _schema(place: Place) -> Fact:
    found, latest, _ = schema_status(place)
    words = f"schema {found}, this version writes {latest}"
    value = {"found": found, "latest": latest}
    return Fact("schema", value, words, "fine" if found == latest else "bad")


def _identity(told: _Told) -> Fact:
    value = {"incarnation": told.incarnation, "epoch": told.epoch}
    return Fact("identity", value, f"incarnation {told.incarnation}, epoch {told.epoch}")


def _clock(told: _Told) -> Fact:
    apart = told.wall_ms - SystemClock().wall_ms()
    value: dict[str, Any] = {"ahead_ms": told.ahead_ms, "server_minus_host_ms": apart}
    if told.ahead_ms > _STEP_MS:
        words = f"the server's clock was set back by {told.ahead_ms / 1000:,.0f} s"
        return Fact("clock", value, words, "bad")
    if abs(apart) > _STEP_MS:
        far = f"{abs(apart) / 1000:,.0f} s"
        words = f"the server's clock, which counts, and this host's are {far} apart"
        return Fact("clock", value, words, "note")
    return Fact("clock", value, "the server's clock and this host's agree")


def _pooler(place: Place, *, between: bool) -> Fact:
    value = {"between": between, "prepare": place.prepare}
    if not between:
        return Fact("pooler", value, "none between this host and the server")
    words = "something stands between this host and the server"
    if place.prepare:
        words += ": if that is PgBouncer in transaction mode, add prepare=never to the URL"
    return Fact("pooler", value, words, "note")


def _own_port(db: Connection) -> int | None:
    """Ours, as this host knows it: the server sees another if something stands between."""
    with socket.socket(fileno=os.dup(db.fileno())) as ours:
        name: object = ours.getsockname()
    return cast("tuple[str, int]", name)[1] if isinstance(name, tuple) else None
