"""Server-sent events: each page gets the newest state and the number of states that it missed."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from lumion_hw.serving.owner import BenchOwner
from lumion_hw.serving.page.updates import PageUpdates

_log = logging.getLogger(__name__)

MAX_PAGES = 64
"""Maximum number of open pages."""
HEARTBEAT_PERIOD_S = 0.2
"""Time without a new state after which a heartbeat event is sent."""
SEND_TIMEOUT_S = 20.0
"""Time after which a page that reads nothing is disconnected."""
_STATE_WAIT_S = 1.0


class UpdateStream:
    """Passes published states to the event loop that serves the pages.

    Attributes:
        n_pages: Number of open pages.
        missed: Number of states that were not sent, over all pages.
    """

    def __init__(self, owner: BenchOwner, about: Mapping[str, Any]) -> None:
        self._updates = PageUpdates(about)
        self._newest = owner.state
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._states = owner.subscribe()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._follow, name="lumion-page-states", daemon=True)
        self._thread.start()
        self.n_pages = 0
        self.missed = 0

    @property
    def is_over(self) -> bool:
        """Whether the stream is closed."""
        return self._stop.is_set()

    def close(self) -> None:
        """Close the stream; a second call has no effect."""
        self._stop.set()
        self._states.close()
        self._wake()
        self._thread.join()

    def _follow(self) -> None:
        while not self._states.is_over:
            state = self._states.wait(_STATE_WAIT_S)
            if state is not None:
                self._newest = state
                self._wake()

    def _wake(self) -> None:
        loop, news = self._loop, self._news
        if loop is not None and news is not None and not loop.is_closed():
            loop.call_soon_threadsafe(news.set)

    @property
    def number(self) -> int:
        """Number of the newest state."""
        return self._newest.number

    def message(self, since: int) -> tuple[int, str]:
        """Return the number of the newest state, and a message with all changes since state ``since``."""
        with self._guard:
            if self._newest.number != self._updates.number:
                self._updates.update(self._newest)
            return self._updates.number, self._updates.message(since)

    async def wait_for_news(self, since: int) -> bool:
        """Wait for a state newer than ``since``, at most one heartbeat period; return whether there is one."""
        self._loop = asyncio.get_running_loop()
        end_s = self._loop.time() + HEARTBEAT_PERIOD_S
        while not self.is_over:
            # Create the event before checking the number, so that a state that arrives in between sets it.
            if self._news is None or self._news.is_set():
                self._news = asyncio.Event()
            if self.number > since:
                return True
            try:
                async with asyncio.timeout_at(end_s):
                    await self._news.wait()
            except TimeoutError:
                return False
        return False


class EventResponse(Response):
    """Sends states to one page as server-sent events until the page disconnects.

    An event contains ``number`` and ``previous`` (numbers of this state and the one sent before), ``missed`` (states
    not sent to this page), ``time_s`` and ``up_s`` (time of day and monotonic clock of the server) and ``parts``. A
    heartbeat is an event ``beat``.
    """

    media_type = "text/event-stream"

    def __init__(self, stream: UpdateStream) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send states until the page disconnects, stops reading, or the server stops."""
        stream = self._stream
        if stream.n_pages >= MAX_PAGES:
            busy = PlainTextResponse(f"{MAX_PAGES} pages are open already; close one of them.\n", status_code=503)
            await busy(scope, receive, send)
            return
        stream.n_pages += 1
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        sending = asyncio.ensure_future(self._send_updates(send))
        try:
            await asyncio.wait((disconnect, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.n_pages -= 1
            for task in (disconnect, sending):
                task.cancel()
            _, failure = await asyncio.gather(disconnect, sending, return_exceptions=True)
            if isinstance(failure, Exception) and not isinstance(failure, OSError):  # nor that the page is gone
                _log.error("a page is not updated any longer", exc_info=failure)

    async def _send_updates(self, send: Send) -> None:
        await _send_with_timeout(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await _send_with_timeout(send, _event("retry: 500\n"))
        last, missed = 0, 0
        while not self._stream.is_over:
            is_new = await self._stream.wait_for_news(last)
            up_s = f"{time.monotonic():.3f}"
            if not is_new:
                await _send_with_timeout(send, _event(f'event: beat\ndata: {{"number":{last},"up_s":{up_s}}}\n\n'))
                continue
            number, content = self._stream.message(last)
            skipped = number - last - 1 if last else 0
            missed += skipped
            self._stream.missed += skipped
            head = f'"previous":{last},"missed":{missed},"up_s":{up_s}'
            await _send_with_timeout(send, _event(f"data: {{{head},{content}}}\n\n"))
            last = number
        await _send_with_timeout(
            send, {"type": "http.response.body", "body": b"event: end\ndata: {}\n\n", "more_body": False}
        )


async def _send_with_timeout(send: Send, message: dict[str, Any]) -> None:
    """Send one message; raise ``TimeoutError`` if the page does not read it within ``SEND_TIMEOUT_S``."""
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await send(message)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(text: str) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}
