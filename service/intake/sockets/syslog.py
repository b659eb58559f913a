"""Syslog on a connection. Nothing is said in answer, as the protocol has none.

What was read is stored before more is read, so a service that cannot store lets its senders wait. What a sender has handed to
its network, and was not read when the service died, is lost: only the sender's own queue could hold it, and it is not told.
"""

from __future__ import annotations

import asyncio

from service.auth import Who
from service.intake.protocols.syslog import Frames, parsed
from service.intake.sockets.listener import Connection

_TURN = 1 << 20
"""bytes that are gathered before they are stored, while more comes at once"""


async def talk(connection: Connection) -> None:
    """Read a connection to its end."""
    frames, shown = Frames(), None
    who: Who | None = None
    too_long = 0
    lines = connection.lines
    while True:
        data = await connection.read()
        for message in map(parsed, frames.feed(data) if data else frames.end()):
            if who is None or (message.token is not None and message.token != shown):
                if who is not None:
                    await lines.store(who)
                shown = message.token or shown
                who = await connection.who(shown)
            lines.add(lines.identities.identity(lines.identities.known(message.attributes)), message.text)
            if lines.size >= _TURN:
                await lines.store(who)
        lines.reject("a message is too long: it was cut or left out", frames.too_long - too_long)
        too_long = frames.too_long
        if who is not None:
            # A token may have been revoked since. What came is stored even if we are told to stop meanwhile.
            who = await connection.who(shown)
            await asyncio.shield(lines.store(who))
        if not data:
            return
