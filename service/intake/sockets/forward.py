"""Fluentd's forward protocol on a connection: each chunk that has a name is acknowledged once it is on disk."""

from __future__ import annotations

import asyncio
import hashlib

from service.intake.protocols import forward
from service.intake.protocols.records import line_of
from service.intake.sockets.listener import Connection


async def talk(connection: Connection) -> None:
    """Read a connection to its end.

    What can never be stored is counted and logged, and its chunk is acknowledged: to send it again would not help.
    """
    messages, lines = forward.Messages(), connection.lines
    await connection.who(None)  # before anything is parsed
    while data := await connection.read():
        for chunk in messages.feed(data):
            who = await connection.who(None)
            for record in chunk.records:
                text, partial = line_of(record, lines.identities)
                lines.add(lines.identities.identity(lines.identities.known(record)), text, partial=partial)
            lines.reject("an event is no record", chunk.bad)
            await asyncio.shield(lines.store(who, _stamp(chunk)))
            if chunk.name is not None:
                connection.writer.write(forward.answer(chunk))
                await connection.writer.drain()


def _stamp(chunk: forward.Chunk) -> bytes | None:
    """A chunk that is sent again has the same name, also on another connection."""
    if chunk.name is None:
        return None
    name = chunk.name.encode("utf-8", "surrogateescape") if isinstance(chunk.name, str) else chunk.name
    return hashlib.blake2b(name, digest_size=32).digest()
