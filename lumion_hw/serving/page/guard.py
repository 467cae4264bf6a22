"""What a page server lets in: its own name, its own pages, requests that end, no more connections than it can hold."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import resource
import socket
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from lumion_hw.serving.reach import LOOPBACK, Networks, may_connect

MAX_CONNECTIONS = 256
"""Connections at a time, fewer where this process may have few files; one more, and the oldest idle one is closed."""
_MIN_CONNECTIONS = 8
_REPORT_EVERY_S = 60.0
REQUEST_TIMEOUT_S = 10.0
"""Time to say a request in, its body included."""
MAX_BODY_BYTES = 64 * 1024
"""Bytes of a request's body."""

_log = logging.getLogger(__name__)
_HEADERS = {
    # Inline script and style are refused, whoever has put them there.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class PageGuard:
    """Refuses requests of other sites' pages and of addresses that may not connect, and adds the headers of safety.

    Args:
        app: What is guarded.
        allowed: Networks that may connect from elsewhere than loopback.
    """

    def __init__(self, app: ASGIApp, allowed: Networks = ()) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or say why not."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        status, words = self._refusal(scope)
        answer = self._app if not status else PlainTextResponse(words + "\n", status)
        await answer(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        """Return status and words of a refusal; 0 if there is none."""
        headers = Headers(scope=scope)
        if not may_connect((scope.get("client") or (LOOPBACK, 0))[0], self._allowed):
            return 403, "this address may not connect; see --allow"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST are known here"
        if scope["method"] != "POST" and ("transfer-encoding" in headers or headers.get("content-length", "0") != "0"):
            return 400, "this request has no body"
        site = headers.get("sec-fetch-site", "none")
        is_visit = headers.get("sec-fetch-mode", "navigate") == "navigate" and scope["path"] == "/"
        if site not in ("none", "same-origin") and not is_visit:
            return 403, "pages of other sites may not ask"
        return 0, ""


async def read_body(receive: Receive) -> bytes:
    """Return the body of a request.

    Raises:
        ValueError: It is longer than ``MAX_BODY_BYTES``.
        TimeoutError: It has not come in time.
        ConnectionError: Whoever sent it has left.
    """
    body = bytearray()
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            body.extend(message.get("body", b""))
            more = message.get("more_body", False)
            if len(body) > MAX_BODY_BYTES:
                raise ValueError(f"more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes connections on which no request comes to its end."""

    _deadline: asyncio.TimerHandle | None = None
    _opened_s = 0.0
    _is_aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room for the new one, if need be, by closing the oldest that asks for nothing."""
        super().connection_made(transport)  # type: ignore[arg-type] # as asyncio says it
        self._opened_s = self.loop.time()
        self._watch()
        # Those that are aborted leave the set in the next round of the loop, and many may come in one round.
        there = [each for each in self.connections if isinstance(each, PatientProtocol) and not each._is_aborted]
        if len(there) > max_connections():
            idle = [each for each in there if not each.is_serving and each is not self]
            (min(idle, key=lambda each: each._opened_s) if idle else self).abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_aborted = True
        self.transport.abort()

    @property
    def is_serving(self) -> bool:
        """Whether a request has come and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, which has to come to its end in time."""
        self._watch()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._deadline = None
        if not self.is_serving:
            self.abort()


def max_connections() -> int:
    """Return how many connections the page may have: at most half of the files that this process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(min(MAX_CONNECTIONS, files // 2), _MIN_CONNECTIONS)


class LoopErrorLog:
    """Logs errors of the loop of a page server, one line a minute: a process without files left meets them often."""

    def __init__(self) -> None:
        self._reported_s = -math.inf
        self._unreported = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take an error of the loop."""
        if loop.time() < self._reported_s + _REPORT_EVERY_S:
            self._unreported += 1
            return
        more = f" ({self._unreported} more like it in the last minutes)" if self._unreported else ""
        _log.error("page server: %s: %s%s", context.get("message", "error"), context.get("exception", ""), more)
        self._reported_s, self._unreported = loop.time(), 0


def host_names(host: str) -> list[str]:
    """Return the names that this server answers to; a page of another site cannot make a browser say one of them."""
    names = {host, "localhost", "127.0.0.1"}
    if not ipaddress.ip_address(host).is_loopback:
        names |= {socket.gethostname(), socket.getfqdn()}
    return sorted(f"[{name}]" if ":" in name else name for name in names)
