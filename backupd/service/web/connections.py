"""How many connections there may be, and how long each may take: uvicorn's own limits count, but do not end any.

Knows: that a visitor may send nothing, too little, or too slowly, may take no answer, and may come two thousand
times. Where there are too many, whoever has waited longest without asking anything goes, so that connections which
are only held keep nobody out. And that a server may end at the moment at which a visitor was let in.
"""

import asyncio
import ipaddress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 128  # at a time
OF_ONE_ADDRESS = 64  # of them; of IPv6 one network of 64 bits, which is what one customer has
HEAD_SECONDS = 10.0  # until a request's head is whole, from the connection or from the answer before
REQUEST_SECONDS = 30.0  # from there until the answer is taken
LAST_HEAD_SECONDS = 0.5  # until the head of a request is whole that nobody else can answer, for the server ends
LONGEST_HEAD = 64 << 10  # bytes


class PatientProtocol(H11Protocol):
    """uvicorn's connection, with an end to its patience."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._origin = ""
        self._waits_since: float | None = None  # for a head, by the loop's clock; None: it is being answered
        self._cycle: object = None  # what the deadline is for
        self._deadline: asyncio.TimerHandle | None = None
        self._is_last = False  # what is asked is answered, and nothing after it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """It may stay, or another one goes for it."""
        super().connection_made(transport)
        self._origin = origin_of(self.client[0] if self.client else "")
        self._look()
        ours = [one for one in self.connections if isinstance(one, PatientProtocol)]
        same = [one for one in ours if one._origin == self._origin]
        crowd = same if len(same) > OF_ONE_ADDRESS else ours if len(ours) > CONNECTIONS else []
        if crowd:
            idle = [(one._waits_since, id(one), one) for one in crowd if one._waits_since is not None]
            min(idle)[2].hang_up()  # the new one is among them

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """The next request, or the end."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing of it is waited for any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends. Whoever was let in just before has asked nothing yet, and is given a moment to: where
        another process answers from now on, it will never see this connection.
        """
        if self.cycle is None:
            self._is_last = True
            self._end_after(LAST_HEAD_SECONDS)
        else:
            super().shutdown()

    def hang_up(self) -> None:
        """At once, whatever was to be sent still."""
        self.connections.discard(self)  # `connection_lost` comes a moment later, and others are counted now
        self.transport.abort()

    def _look(self) -> None:
        """Each head has a deadline of its own, and so has each answer."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self.cycle is not self._cycle:
            self._cycle, self._waits_since = self.cycle, None
            self.cycle.keep_alive = self.cycle.keep_alive and not self._is_last
            self._end_after(REQUEST_SECONDS)
        elif not answering and (self._waits_since is None or self._deadline is None):
            self._waits_since = self.loop.time()
            self._end_after(REQUEST_SECONDS if self.transport.get_write_buffer_size() else HEAD_SECONDS)

    def _end_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.hang_up)


def origin_of(address: str) -> str:
    """Whom a connection counts for."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)
