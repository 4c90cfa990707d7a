"""Where a Redis URL leads, and which are refused."""

from __future__ import annotations

import pytest

from indoubt.stores.redis.place import place_of


@pytest.mark.parametrize(
    ("url", "kind", "hosts"),
    [
        ("redis://one", "alone", [("one", 6379)]),
        ("rediss://u:p%40@one:1/2", "alone", [("one", 1)]),
        ("redis://one,two:7", "alone", [("one", 6379), ("two", 7)]),
        ("redis+sentinel://one/main/3", "sentinel", [("one", 26379)]),
        ("redis+cluster://[::1]:7,two", "cluster", [("::1", 7), ("two", 6379)]),
    ],
)
def test_a_url_says_where(url: str, kind: str, hosts: list[tuple[str, int]]) -> None:
    place = place_of(url)
    assert (place.kind, list(place.hosts)) == (kind, hosts)
    assert "p@" not in place.shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://one/x",
        "redis+cluster://one/2",
        "redis+sentinel://one",
        "redis://one:x",
        "redis://one?namespace=a{b}",
        "redis://one?partitions=65",
        "redis://secret@one?wait=1",
    ],
)
def test_a_garbled_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        place_of(url)
    assert "secret" not in str(caught.value)
