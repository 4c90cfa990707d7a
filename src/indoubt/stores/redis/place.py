"""Where the ledger is: servers, how to reach them, and what is ours in a URL."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from .keys import check_namespace, check_partitions

FORMS: Final = (
    "redis://[user:password@]server[:port][,server...][/db], rediss:// (TLS),"
    " redis+cluster://server,server or redis+sentinel://sentinel,sentinel/service"
)
PATIENCE_MS: Final = 10_000
"""How long an answer may take."""
PORT: Final = 6379
SENTINEL_PORT: Final = 26379
NAMESPACE: Final = "indoubt"
_KINDS: Final = {"": "alone", "cluster": "cluster", "sentinel": "sentinel"}
_OURS: Final = ("namespace", "partitions", "wait_replicas", "wait_aof")
_TLS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")


class Place(NamedTuple):
    """One ledger in one Redis; ``login`` and ``tls`` are redis-py's own words."""

    kind: str
    hosts: tuple[tuple[str, int], ...]
    service: str = ""
    db: int = 0
    login: tuple[tuple[str, str], ...] = ()
    tls: tuple[tuple[str, str], ...] | None = None
    namespace: str = NAMESPACE
    partitions: int | None = None
    wait_replicas: int = 0
    wait_aof: bool = False
    patience_ms: int = PATIENCE_MS
    client: Any = None

    @property
    def shown(self) -> str:
        """For messages: where, without user and password."""
        hosts = ",".join([f"{host}:{port}" for host, port in self.hosts])
        return f"Redis {self.namespace!r} at {hosts or 'the given client'}"

    def connecting(self) -> dict[str, Any]:
        """How connections of ours are made, but for host and port: nothing is sent twice."""
        settings: dict[str, Any] = {"db": self.db, **dict(self.login)}
        if self.kind == "cluster":
            del settings["db"]
        settings["socket_timeout"] = settings["socket_connect_timeout"] = self.patience_ms / 1_000
        return settings


def place_of(url: str, **options: Any) -> Place:
    """Read a URL; options (also in its query) are ours.

    Raises:
        ValueError: a garbled URL; it is not repeated, since it may hold a password.
        TypeError: an option that there is not.
    """
    parts = urlsplit(url)
    secure, _, kind = parts.scheme.partition("+")
    if secure not in {"redis", "rediss"} or kind not in _KINDS:
        raise ValueError(f"Redis cannot be reached so: use {FORMS}")
    given: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls = tuple((name, given.pop(name)) for name in _TLS if name in given)
    if unknown := set(given) - set(_OURS):
        raise ValueError(f"no such option: {min(unknown)[:40]!r}; there are {_OURS}")
    login, _, hosts = parts.netloc.rpartition("@")
    port = SENTINEL_PORT if kind == "sentinel" else PORT
    place = Place(
        kind=_KINDS[kind],
        hosts=tuple(_host(text, port) for text in hosts.split(",")),
        login=_login(login),
        tls=tls if secure == "rediss" else None,
        **_path(parts.path, kind),
    )
    return with_options(place, **(given | options))


def with_options(place: Place, **options: Any) -> Place:
    """The place with options as keyword arguments or a URL's query give them.

    Raises:
        ValueError: a value that cannot be. TypeError: an option that there is not.
    """
    made = dict(options)
    for name in ("partitions", "wait_replicas", "patience_ms"):
        if isinstance(made.get(name), str):
            made[name] = _number(made[name], name)
    if isinstance(made.get("wait_aof"), str):
        made["wait_aof"] = made["wait_aof"] in {"1", "true", "yes"}
    if unknown := set(made) - {*_OURS, "patience_ms"}:
        raise TypeError(f"no such option: {min(unknown)}")
    place = place._replace(**made)
    check_namespace(place.namespace)
    if place.partitions is not None:
        check_partitions(place.partitions)
    if place.wait_replicas < 0 or place.patience_ms <= 0:
        raise ValueError("wait_replicas is not negative, and patience_ms is positive")
    return place


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        name, _, behind = text[1:].partition("]")
        given = behind.removeprefix(":")
    else:
        name, _, given = text.partition(":")
    return name or "localhost", _number(given, "port") if given else port


def _login(text: str) -> tuple[tuple[str, str], ...]:
    user, _, password = text.partition(":")
    named = (("username", unquote(user)), ("password", unquote(password)))
    return tuple(pair for pair in named if pair[1])


def _path(path: str, kind: str) -> dict[str, Any]:
    words = [unquote(word) for word in path.split("/") if word]
    if kind == "sentinel":
        if not words:
            raise ValueError(f"a Sentinel's URL names the service: {FORMS}")
        return {"service": words[0], "db": _number(words[1], "db") if words[1:] else 0}
    if kind == "cluster" and words not in ([], ["0"]):
        raise ValueError("a Cluster has one database: leave its number out")
    if len(words) > 1:
        raise ValueError(f"one number of a database: {FORMS}")
    return {"db": _number(words[0], "db") if words else 0}


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name}: a number")
    return int(text)
