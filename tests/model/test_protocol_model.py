"""The protocol holds in every order of its steps, and each of its rules is needed.

Small bounds, which take seconds; ``make model`` searches the large ones.
"""

import pytest

from .protocol_model import search
from .switches import NEED_NOT_SHOW, RULES, SCENARIOS, WHERE, Scenario

SMALL = {"crash": 0, "lost": 0, "attempts": 2, "workers": 2}
HOLDS = ("prune", "rewind", "optin", "query", "renew")
# What a rule's harm needs beyond the small bounds.
NEEDS = {
    "fence_on_settle": {"reject": True},
    "closed_all": {"reject": True},
    "generation": {"reject": True},
    "retry_keeps_deadline": {"lost": 1},
}
LARGE = {"perm_by_attempt", "spent_at_dispatch", "release_history"}
SHOWN = {
    "send_prompt": "O2",
    "inflight_bound": "O2",
    "read_lag": "O1",
    "durable_mark": "O5",
    "permit_check": "O2",
    "permit_from_read": "O2",
    "retry_keeps_deadline": "O2",
    "probe_began_quiet": "O1",
    "measured_before_probe": "O1",
    "measured_past_permit": "O1",
    "epoch": "O1",
    "tombstone": "O1",
    "generation": "O4",
    "free": "O2",
    "fence_on_settle": "O4",
    "settle_wait": "O1",
    "closed_all": "O2",
    "bound_to_pause": "OB",
    "person_waits_quiet": "O2",
    "prepared_history": "O2",
    "cancel_guard": "OC",
    "two_clocks": "O2",
    "retention_margin": "O1",
    "requeue_needs_proof": "O1",
}


def small(name: str) -> Scenario:
    """A scenario with fewer faults and attempts."""
    return SCENARIOS[name]._replace(**SMALL)


@pytest.mark.parametrize("name", HOLDS)
def test_nothing_breaks_and_every_state_leads_to_an_end(name: str) -> None:
    found = search(small(name))
    assert found.broken == ""
    assert found.states > 1000


@pytest.mark.parametrize("off", [(), ("send_prompt",)], ids=["prompt", "paused"])
@pytest.mark.parametrize("name", ["optin", "query", "renew"])
def test_proven_silence_needs_no_prompt_holder(name: str, off: tuple[str, ...]) -> None:
    assert search(small(name), off=off, add=("silence",)).broken == ""


@pytest.mark.parametrize("rule", SHOWN)
def test_without_this_rule_something_breaks(rule: str) -> None:
    name = WHERE.get(rule, "non")
    scenario = small(name)._replace(reject=False)._replace(**NEEDS.get(rule, {}))
    found = search(scenario, off=(rule,), traced=True)
    assert found.broken.startswith(SHOWN[rule])
    assert 2 < len(found.trace) < 25


def test_every_rule_is_shown_here_or_by_the_large_search() -> None:
    assert set(RULES) == set(SHOWN) | LARGE | set(NEED_NOT_SHOW)


def test_a_store_put_back_to_before_a_record_knows_nothing_of_it() -> None:
    found = search(small("rewind"), add=("rewound_to_nothing",))
    assert found.broken.startswith("O1")  # nothing in it can tell that it forgot
