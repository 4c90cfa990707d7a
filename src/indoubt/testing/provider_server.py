"""The fake provider's server: a process of its own that acts, remembers and misbehaves on request.

Run it with ``python -m indoubt.testing.provider_server --dir DIR --port 0 --port-file FILE``;
`indoubt.testing.provider.FakeProvider` does so for you. It listens on 127.0.0.1 only and needs
nothing but the standard library. Faults and gates live in the process and end with it; everything
else survives a kill (`provider_memory`). What each request does is in `provider_service`.

=======================================  =====================================================
``POST /acts``                           act: ``{key, idempotency_key, amount}``
``GET /acts?key=&idempotency_key=``      look up: by idempotency key, else by business key
``GET /count?key=&at_least=&wait_ms=``   effects, of one business key or of all
``GET /log?after=``                      what was asked of ``/acts`` and what was done about it
``GET /status``                          pid, clock, totals
``POST /faults``, ``GET /faults/ID``     misbehave; wait until a request has met the fault
``POST /faults/ID/release``              let held requests go on (also ``drop``, ``clear``)
``POST /clock``                          put the provider's clock forward
=======================================  =====================================================
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import socket
import struct
import threading
from pathlib import Path

from indoubt.testing import provider_wire as wire
from indoubt.testing.provider_service import DropConnection, Provider

MAX_BODY = 1 << 20


async def serve_connection(
    provider: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the requests of one connection, one after the other."""
    try:
        while await _serve_request(provider, reader, writer):
            pass
    except DropConnection as drop:
        if drop.how == "rst":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # The client is gone; what it asked for is done.
    finally:
        writer.close()


async def _serve_request(
    provider: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    raw = (await reader.readuntil(wire.END_OF_HEAD)).removesuffix(wire.END_OF_HEAD)
    closes = True
    try:
        head = wire.read_head(raw)
        request = wire.read_request(head, await _read_body(reader, head.length))
        status, body = await provider.answer(request)
        closes = head.closes
    except (ValueError, KeyError) as wrong:
        status, body = 400, {"code": "bad_request", "message": str(wrong)}
    writer.write(wire.write_response(status, body, closes=closes))
    await writer.drain()
    return not closes


async def _read_body(reader: asyncio.StreamReader, length: int) -> bytes:
    if length > MAX_BODY:
        raise ValueError("the body is too long")
    return await reader.readexactly(length)


def _announce(port: int, port_file: str | None) -> None:
    if port_file:
        half = Path(f"{port_file}.new")
        half.write_text(f"{port}\n")
        half.replace(port_file)  # whoever sees the file sees the whole number
    print(port, flush=True)  # noqa: T201 (the parent reads the port here)


async def serve(options: argparse.Namespace) -> None:
    """Listen until the process is ended from outside."""
    provider = Provider(
        Path(options.dir),
        lag_ms=options.not_found_lag_ms,
        keep_key_ms=options.key_retention_ms,
        manual_clock=options.manual_clock,
    )
    server = await asyncio.start_server(
        lambda reader, writer: serve_connection(provider, reader, writer),
        "127.0.0.1",
        options.port,
        backlog=1024,
    )
    port = server.sockets[0].getsockname()[1]
    _announce(port, options.port_file)
    await provider.land_late_effects()


def die_with_parent(remove: str | None) -> None:
    """End the process when standard input closes, which it does however the parent died."""
    # Not through sys.stdin: a thread inside its buffer would make a regular exit abort.
    while os.read(0, 4096):
        pass
    if remove:
        shutil.rmtree(remove, ignore_errors=True)
    os._exit(0)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="provider_server", description="The fake provider.")
    parser.add_argument("--dir", required=True, help="where its memory lies")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--port-file", help="write the port here when ready")
    parser.add_argument("--not-found-lag-ms", type=int, default=0)
    parser.add_argument("--key-retention-ms", type=int, help="default: keys are kept for ever")
    parser.add_argument(
        "--manual-clock", action="store_true", help="time moves by POST /clock only"
    )
    parser.add_argument("--with-parent", action="store_true", help="end when stdin closes")
    parser.add_argument("--remove-dir", action="store_true", help="and remove the directory then")
    options = parser.parse_args(arguments)
    Path(options.dir).mkdir(parents=True, exist_ok=True)
    if options.with_parent:
        # Ctrl-C reaches the whole group; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        remove = options.dir if options.remove_dir else None
        threading.Thread(target=die_with_parent, args=(remove,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options))


if __name__ == "__main__":
    main()
