"""JSON values: the door where they come in, and the frozen form in which they are kept.

Promises: what passes the door is JSON and nothing else; the copy shares nothing with the caller; a
refusal names the path and the rule and never the value; two values have one fingerprint exactly if
they are the same JSON.
"""

from .door import Encoded, TooLarge, canonical, detach, fingerprint, parse
from .exact import DEPTH_MAX, INT_BITS_MAX, Json, NotJson, exact
from .frozen import Frozen, FrozenList, FrozenMap, freeze, thaw

__all__ = [
    "DEPTH_MAX",
    "INT_BITS_MAX",
    "Encoded",
    "Frozen",
    "FrozenList",
    "FrozenMap",
    "Json",
    "NotJson",
    "TooLarge",
    "canonical",
    "detach",
    "exact",
    "fingerprint",
    "freeze",
    "parse",
    "thaw",
]
