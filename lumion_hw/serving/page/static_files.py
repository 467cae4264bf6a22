"""The static files of the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_STATIC_FOLDER = Path(__file__).parent / "static"
STATIC = {
    "/" if path.name == "index.html" else f"/{path.name}": path.name
    for path in sorted(_STATIC_FOLDER.iterdir())
    if path.suffix in _TYPES
}
"""Served files by URL path."""


def static_files(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the request handler of a file."""
    path = _STATIC_FOLDER / name

    async def answer(_request: Request) -> Response:
        return FileResponse(path, media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})

    return answer
