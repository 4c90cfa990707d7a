"""Every bound of the ledger, with its reason. Bounds hold at the ledger's door, before dispatch."""

from __future__ import annotations

from typing import Final

PAYLOAD_BYTES: Final = 1_048_576
"""Arguments of one effect: a 1-MiB string must pass (S21), and one commit must stay short."""
RECEIPT_BYTES: Final = 1_048_576
"""A larger result is recorded as "happened, receipt not stored"."""
TOKEN_BYTES: Final = 4_096
"""A checkpoint note is a correlation, not a payload."""
EVIDENCE_BYTES: Final = 4_096
"""One probe answer kept as evidence; a larger one is kept as its size."""
EVIDENCE_KEPT: Final = 20
"""Newest pieces of evidence in the record; the journal has them all."""
ATTEMPTS_KEPT: Final = 16
"""Attempts in the record; closed ones are folded first."""
FENCE_LEAP: Final = 1_048_576
"""More claims than a store that was put back can have forgotten of one record."""
DECISIONS_KEPT: Final = 4
"""Decisions whose repeat (a lost answer) gets the first answer."""
MESSAGE_CHARS: Final = 1_024
"""Reasons and messages of people and providers."""
NAME_CHARS: Final = 256
"""Names, scopes, tenants, actors, external references."""
KEY_CHARS: Final = 1_024
"""A business key."""
PAGE_MAX: Final = 1_000
"""Records of one page."""
BATCH_MAX: Final = 512
"""Batches of one commit."""
DURATION_MS_MAX: Final = 315_360_000_000
"""Ten years: longer is a wrong unit, not a wish."""
TRIES_MAX: Final = 64
"""Re-decisions of one command against faster others before ``Contended``."""
SENDS_BEFORE_RECOVERY_STOPS: Final = 5
"""An act that kills whoever performs it must not kill every process that recovers (S23): after so
many attempts only its caller, or a person, sends it again."""
REPLAYS_IN_ONE_CALL: Final = 1
"""First try and one replay: a call that fails the same way twice is told, not looped."""
