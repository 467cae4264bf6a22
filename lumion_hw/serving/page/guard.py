"""Protection of the page server: allowed hosts, complete requests, connection limit."""

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
"""Maximum number of connections; beyond it the oldest idle one is closed."""
_MIN_CONNECTIONS = 8
_METHODS = ("GET", "HEAD", "POST")
_REPORT_EVERY_S = 60.0
REQUEST_TIMEOUT_S = 10.0
"""Time within which a complete request must arrive."""
MAX_BODY_BYTES = 64 * 1024
"""Largest request body."""
_MAX_DISCARDED_BYTES = 4 * 1024 * 1024
"""Largest body that is read to its end, so that the client sees why its request is refused."""

_log = logging.getLogger(__name__)
_HEADERS = {
    # Browsers then reject all inline scripts and styles, including injected ones.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class PageGuard:
    """Middleware that rejects requests from other sites and from forbidden addresses, and adds security headers.

    Allowed are this host and the networks ``allowed``.
    """

    def __init__(self, app: ASGIApp, allowed: Networks = ()) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the application, or reply with the reason why it is rejected."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        status, reason = self._rejection(scope)
        allow = {"Allow": ", ".join(_METHODS)} if status == 405 else None
        response = self._app if not status else PlainTextResponse(reason + "\n", status, allow)
        await response(scope, receive, send_with_headers)

    def _rejection(self, scope: Scope) -> tuple[int, str]:
        headers = Headers(scope=scope)
        if not may_connect((scope.get("client") or (LOOPBACK, 0))[0], self._allowed):
            return 403, "this address may not connect; see --allow"
        if scope["method"] not in _METHODS:
            return 405, "this server supports only GET, HEAD and POST"
        if scope["method"] != "POST" and ("transfer-encoding" in headers or headers.get("content-length", "0") != "0"):
            return 400, "this request must not have a body"
        site = headers.get("sec-fetch-site", "none")
        is_visit = headers.get("sec-fetch-mode", "navigate") == "navigate" and scope["path"] == "/"
        if site not in ("none", "same-origin") and not is_visit:
            return 403, "pages of other sites may not use this server"
        return 0, ""


async def read_body(receive: Receive) -> bytes:
    """Read the body of a request.

    Raises:
        ValueError: The body is longer than ``MAX_BODY_BYTES``.
        TimeoutError: The body did not arrive in time.
        ConnectionError: The client has disconnected.
    """
    body, n_bytes = bytearray(), 0
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        has_more = True
        while has_more and n_bytes <= _MAX_DISCARDED_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            chunk = message.get("body", b"")
            n_bytes += len(chunk)
            if n_bytes <= MAX_BODY_BYTES:
                body.extend(chunk)
            has_more = message.get("more_body", False)
    if n_bytes > MAX_BODY_BYTES:
        raise ValueError(f"more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 protocol that closes connections without a complete request."""

    _deadline: asyncio.TimerHandle | None = None
    _opened_s = 0.0
    _is_aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection. At the connection limit, close the oldest idle connection first."""
        super().connection_made(transport)  # type: ignore[arg-type] # asyncio's own signature
        self._opened_s = self.loop.time()
        self._watch()
        # Aborted connections leave the set only in the next round of the loop, and many may arrive in one round.
        current = [item for item in self.connections if isinstance(item, PatientProtocol) and not item._is_aborted]
        if len(current) > max_connections():
            idle = [item for item in current if not item.is_serving and item is not self]
            (min(idle, key=lambda item: item._opened_s) if idle else self).abort()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._is_aborted = True
        self.transport.abort()

    @property
    def is_serving(self) -> bool:
        """Whether a request is being processed."""
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request and start its deadline."""
        self._watch()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline of a closed connection."""
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
    """Return the connection limit: half of the files that this process may open, or less."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(min(MAX_CONNECTIONS, files // 2), _MIN_CONNECTIONS)


class LoopErrorLog:
    """Logs errors of the event loop, at most once a minute."""

    def __init__(self) -> None:
        self._reported_s = -math.inf
        self._unreported = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop, or count it if the last line is less than a minute old."""
        if loop.time() < self._reported_s + _REPORT_EVERY_S:
            self._unreported += 1
            return
        unreported = f" ({self._unreported} more like it in the last minutes)" if self._unreported else ""
        _log.error(
            "event loop error: %s: %s%s", context.get("message", "error"), context.get("exception", ""), unreported
        )
        self._reported_s, self._unreported = loop.time(), 0


def host_names(host: str) -> list[str]:
    """Return the host names that the server accepts, as protection against DNS rebinding."""
    names = {host, "localhost", "127.0.0.1"}
    if not ipaddress.ip_address(host).is_loopback:
        names |= {socket.gethostname(), socket.getfqdn()}
    return sorted(f"[{name}]" if ":" in name else name for name in names)
