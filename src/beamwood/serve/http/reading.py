"""When a connection is read: no further requests while some of it wait for their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sized

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["Reading"]


class Reading(FlowControl):
    """Flow control that leaves further requests with the system while `waiting` holds any.

    uvicorn reads on after each response, so the requests of a fast client would fill the memory.
    """

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()
