"""A short storm: real workers on one file, killed and stopped, and people who decide meanwhile."""

from __future__ import annotations

from pathlib import Path

from tests.race.storm import storm


async def test_no_act_happens_twice_unasked_and_nobody_is_told_what_is_not_so(
    tmp_path: Path,
) -> None:
    made = await storm(tmp_path, seed=1, seconds=6.0)
    assert made.did["told"] > 0
    assert made.did["effects"] > 0
