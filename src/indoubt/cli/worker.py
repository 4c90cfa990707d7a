"""``indoubt worker``: run a program's worker as a process of its own."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .access import loaded
from .edge import command
from .escape import visible
from .exits import Exit, Told
from .output import Output

if TYPE_CHECKING:
    from indoubt.worker import Worker

Once = Annotated[bool, typer.Option("--once", help="One pass, then end: for cron.")]
Named = Annotated[str, typer.Argument(metavar="APP", help="Your worker, as pkg.mod:worker.")]


@command
async def worker(*, app: Named, once: Once = False, as_json: options.AsJson = False) -> Exit:
    """Fire delayed effects, and recover what is in doubt, as your worker says.

    An ordinary process that calls the library: any number of them may run, and nothing runs
    unless one does, or your code calls the library. SIGTERM or Ctrl-C ends
    it gracefully (running handlers finish, the rest is handed over); a second one ends it at
    once, and what was running is done again elsewhere once its lease is over.

    Example:
      indoubt worker shop.app:worker
    """
    found, output = _worker(app), Output(as_json=as_json)
    if once:
        report = await found.run_once()
        output.document({"claimed": report.claimed, "results": report.results})
        output.line(_words(report.claimed, report.results))
        await found.ledger.close()
        return Exit.DONE
    output.note(f"{app}: working; Ctrl-C ends it gracefully")
    await _until_signalled(found, output)
    await found.ledger.close()
    output.document({"ended": "gracefully"})
    return Exit.DONE


async def _until_signalled(found: Worker, output: Output) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def once_more(number: int) -> None:
        if asked.is_set():  # the second one means it
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, signal.SIG_DFL)
            signal.raise_signal(number)
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, once_more, number)
    try:
        async with found:
            await asked.wait()
            output.note("ending: running handlers finish first")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _worker(app: str) -> Worker:
    from indoubt.worker import Worker  # noqa: PLC0415 - `--help` needs none of this

    found: Any = loaded(app)
    if not isinstance(found, Worker):
        raise Told(Exit.USAGE, f"{visible(app)}: a {type(found).__name__}, not a Worker")
    return found


def _words(claimed: int, results: dict[str, int]) -> str:
    told = [f"{count} {name.lower()}" for name, count in sorted(results.items())]
    return f"{claimed} claimed" + (f": {', '.join(told)}" if told else "")
