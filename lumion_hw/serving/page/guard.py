"""What a page server lets in: its own name, its own pages, requests that end, no more connections than it can hold."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from lumion_hw.serving.reach import LOOPBACK, Networks, may_connect

MOST_CONNECTIONS = 256
"""Connections at a time; one more, and the oldest that asks for nothing is closed."""
REQUEST_S = 10.0
"""Time to say a request in, its body included."""
MOST_BODY = 64 * 1024
"""Bytes of a request's body."""

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


async def body_of(receive: Receive) -> bytes:
    """Return the body of a request.

    Raises:
        ValueError: It is longer than ``MOST_BODY``.
        TimeoutError: It has not come in time.
        ConnectionError: Whoever sent it has left.
    """
    body = bytearray()
    async with asyncio.timeout(REQUEST_S):
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            body.extend(message.get("body", b""))
            more = message.get("more_body", False)
            if len(body) > MOST_BODY:
                raise ValueError(f"more than {MOST_BODY} bytes")
    return bytes(body)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes connections on which no request comes to its end."""

    _deadline: asyncio.TimerHandle | None = None
    _made_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room for the new one, if need be, by closing the oldest that asks for nothing."""
        super().connection_made(transport)  # type: ignore[arg-type] # as asyncio says it
        self._made_s = self.loop.time()
        self._watch()
        if len(self.connections) > MOST_CONNECTIONS:
            idle = [each for each in self.connections if isinstance(each, PatientProtocol) and each is not self]
            idle = [each for each in idle if not each.is_serving]
            (min(idle, key=lambda each: each._made_s) if idle else self).transport.abort()

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
            self._deadline = self.loop.call_later(REQUEST_S, self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        if not self.is_serving:
            self.transport.abort()


def host_names(host: str) -> list[str]:
    """Return the names that this server answers to; a page of another site cannot make a browser say one of them."""
    names = {host, "localhost", "127.0.0.1"}
    if not ipaddress.ip_address(host).is_loopback:
        names |= {socket.gethostname(), socket.getfqdn()}
    return sorted(f"[{name}]" if ":" in name else name for name in names)
