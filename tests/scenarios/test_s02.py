"""S02: a mail is accepted, its 250 is never seen; here with a mailer that knows the phase."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Self

import pytest
from tests.scenarios.performing import Payment, itself, told_by

from indoubt import Ledger

ANSWER_S = 0.3
TRIES = 3


class Refused(Exception):
    """The server said no before it had the mail."""


class NotSent(Exception):
    """The link was lost before the mail was handed over."""


class Post:
    """An SMTP server: who has got mail, and what it does to the next mails, first one first.

    Scripts: ``refuse`` (550 at RCPT), ``cut`` (the link, at RCPT), ``silent`` (delivered, no 250),
    ``late`` (delivered, and its 250 comes as the answer to the next command).
    """

    def __init__(self) -> None:
        self.box: list[str] = []
        self.scripts: list[str] = []
        self.links = 0
        self.mails = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in self._open:
            link.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.links += 1
        self._open.add(writer)
        owed, to, script = b"", "", ""
        writer.write(b"220 ready\r\n")
        while line := (await reader.readline()).decode().strip():
            writer.write(owed)
            owed = b""
            verb = line.split(" ")[0]
            if verb == "RCPT":
                self.mails += 1
                to, script = line.partition(":")[2], self.scripts.pop(0) if self.scripts else ""
            if verb == "RCPT" and script == "cut":
                break
            if verb == "." and script:
                self.box.append(to)
                owed = b"250 queued\r\n" if script == "late" else b""
                continue
            if verb == ".":
                self.box.append(to)
            refused = verb == "RCPT" and script == "refuse"
            writer.write(
                b"550 no\r\n" if refused else b"354 go\r\n" if verb == "DATA" else b"250\r\n"
            )
        writer.close()


class Mailer:
    """A client that keeps its connection, but never one on which an answer is owed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, to: str) -> dict[str, Any]:
        handed_over = False
        try:
            async with asyncio.timeout(ANSWER_S):
                if self._link is None:
                    self._link = await asyncio.open_connection("127.0.0.1", self._port)
                    await self._answer()
                for command in ("MAIL FROM:us", f"RCPT TO:{to}", "DATA"):
                    await self._say(command)
                handed_over = True
                await self._say(".")
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self.drop()
            if handed_over:
                raise
            raise NotSent(to) from error
        except BaseException:
            self.drop()
            raise
        return {"to": to}

    def drop(self) -> None:
        """Whatever comes on this connection now belongs to nobody."""
        if self._link is not None:
            self._link[1].transport.abort()
            self._link = None

    async def _say(self, command: str) -> None:
        assert self._link is not None
        self._link[1].write(f"{command}\r\n".encode())
        await self._answer()

    async def _answer(self) -> None:
        assert self._link is not None
        answer = (await self._link[0].readuntil(b"\n")).decode()
        if answer.startswith("5"):
            raise Refused(answer.strip())


class Desk:
    """A help desk: at most three tries, each only where the last one was certainly not sent."""

    def __init__(self, ledger: Ledger, mailer: Mailer) -> None:
        self.ledger = ledger

        @ledger.effect(
            safety="non_idempotent",
            name="send_mail",
            key=itself,
            clean_failures=(Refused, NotSent),
        )
        async def send_mail(to: str) -> dict[str, Any]:
            return await mailer.send(to)

        self.send: Any = send_mail.using(wait=timedelta(0))

    async def deliver(self, to: str) -> list[Any]:
        told: list[Any] = []
        for _ in range(TRIES):
            told = await told_by(self.send, to)
            if told[1] != "NotSent":
                break
        return told

    async def state(self, to: str) -> tuple[str, str | None, int]:
        """State, effect and attempt; attempt counters never go down."""
        found = await self.ledger.find("send_mail", to)
        assert found is not None
        attempts = [entry.attempt for entry in await self.ledger.journal(found.record_id)]
        assert attempts == sorted(attempts)
        return found.state, found.effect, found.attempt


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    """The server."""
    async with Post() as post:
        yield post


@pytest.fixture
async def desk(payment: Payment, post: Post) -> AsyncIterator[Desk]:
    """The desk, with a ledger and a mailer."""
    mailer = Mailer(post.port)
    async with payment.ledger() as ledger:
        yield Desk(ledger, mailer)
    mailer.drop()


async def test_refused(post: Post, desk: Desk) -> None:
    """(a) `failed`, no retry."""
    post.scripts = ["refuse"]
    assert (await desk.deliver("ana"))[:2] == ["raised", "Refused"]
    assert await desk.state("ana") == ("failed", "none", 1)
    assert (post.box, post.mails) == ([], 1)


async def test_cut_before_data(post: Post, desk: Desk) -> None:
    """(b) Retried, one mail in the box. Attempt counters never go down."""
    post.scripts = ["cut", "cut"]
    assert await desk.deliver("ana") == ["returned", {"to": "ana"}]
    assert await desk.state("ana") == ("succeeded", None, 3)
    assert (post.box, post.links) == (["ana"], 3)


async def test_cut_as_often_as_it_may_be_tried(post: Post, desk: Desk) -> None:
    """Retry limit 3; attempt counters never go down."""
    post.scripts = ["cut"] * 5
    assert (await desk.deliver("ana"))[:2] == ["raised", "NotSent"]
    assert await desk.state("ana") == ("failed", "none", 3)
    assert (post.box, post.mails) == ([], 3)


async def test_delivered_and_no_answer(post: Post, desk: Desk) -> None:
    """(c) `unknown`, one mail in the box, no retry, shown to a person."""
    post.scripts = ["silent"]
    for _ in range(2):
        told = await desk.deliver("ana")
        assert told == ["raised", "OutcomeUnknown", "ask_person"]
        await desk.ledger.recover(wait=timedelta(0))
    assert (post.box, post.mails) == (["ana"], 1)
    assert [item.key for item in (await desk.ledger.in_doubt()).items] == ["ana"]
    assert (await desk.state("ana"))[0] == "awaiting_decision"


async def test_an_answer_that_comes_late(post: Post, desk: Desk) -> None:
    """(d) The late 250 is not booked as success of another message, the connection is dropped."""
    post.scripts = ["late", "refuse"]
    assert (await desk.deliver("ana"))[:2] == ["raised", "OutcomeUnknown"]
    assert (await desk.deliver("ben"))[:2] == ["raised", "Refused"]
    assert post.links == 2
    assert await desk.state("ben") == ("failed", "none", 1)
    assert (await desk.state("ana"))[0] == "awaiting_decision"
    assert await desk.deliver("eve") == ["returned", {"to": "eve"}]
    assert post.box == ["ana", "eve"]
