"""The files of the page itself: few, small, and known by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

STATIC = {
    "/": "index.html",
    "/page.css": "page.css",
    "/page.js": "page.js",
    "/live.js": "live.js",
    "/mesh.js": "mesh.js",
    "/tables.js": "tables.js",
    "/actions.js": "actions.js",
    "/icon.svg": "icon.svg",
}
"""What is served of them, and where."""
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HERE = Path(__file__).parent / "static"


def static_files(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers with one of the files; browsers ask each time whether it is still the same."""
    path = _HERE / name

    async def answer(_request: Request) -> Response:
        return FileResponse(path, media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})

    return answer
