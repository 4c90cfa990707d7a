"""What cannot hold is refused when it is declared, not when money moves."""

from __future__ import annotations

from typing import Any

import pytest

from indoubt import Ledger
from indoubt.sync import Ledger as SyncLedger


@pytest.mark.parametrize("kind", [Ledger, SyncLedger], ids=["async", "blocking"])
@pytest.mark.parametrize("given", ["shop.db", "/var/lib/shop.db", ""])
def test_a_path_is_no_url_and_is_refused_at_once(kind: Any, given: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///"):
        kind(given)
