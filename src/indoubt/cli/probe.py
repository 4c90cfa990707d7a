"""``indoubt probe``: ask the provider now, by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import options
from .access import look_up, now_of, reach
from .edge import command
from .exits import Exit, Told
from .output import Output
from .wording import comes_next, known

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from indoubt.recovery.items import RecordView


@command
async def probe(
    *,
    ref: options.Ref,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask the provider about one record, through your program's own probe.

    The answer is kept as evidence, and settles what it may settle. Nothing is sent again: a probe
    only reads.

    Example:
      indoubt probe rec_7f3a --app shop.app:ledger
    """
    if not app:
        raise Told(
            Exit.USAGE,
            "a probe is part of your program, and none is loaded",
            next_step="--app pkg.mod:ledger, or set INDOUBT_APP",
        )
    output = Output(as_json=as_json)
    async with reach(store, tenant, app) as reached:
        item = await look_up(reached, ref)
        with output.progress("asking the provider"):
            item = await _ask(reached.ledger.probe(item.record_id, tenant_id=reached.tenant))
        now = await now_of(reached)
    output.document({"record": item.to_dict()})
    output.line(f"{item.ref}: {item.state}")
    output.fields([("known", known(item, now)), ("next", comes_next(item))])


async def _ask(asking: Awaitable[RecordView]) -> RecordView:
    from indoubt.errors import RecordNotFound  # noqa: PLC0415

    try:
        return await asking
    except RecordNotFound:
        raise
    except LookupError as error:
        step = "see what is known: indoubt show REF; --app names the program whose probe is asked"
        raise Told(Exit.ERROR, str(error), next_step=step) from error
