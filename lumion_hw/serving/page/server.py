"""The page server."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self

from lumion_hw.errors import ConfigError, LinkError
from lumion_hw.serving.reach import LOOPBACK, Networks, open_listener, parse_networks

if TYPE_CHECKING:
    from lumion_hw.serving.owner import BenchOwner

_OPTION = "--page-port"
_NEEDS = ("starlette", "uvicorn", "prometheus_client")
_BUFFER = 64 * 1024
"""Send buffer per connection, in bytes."""
_START_S, _END_S = 10.0, 2.0


def require_page() -> None:
    """Raise ``ConfigError`` with an install command if packages of the page are missing."""
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the web page needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'lumion-hw[page]'",
        )


def check_page(host: str, port: int, allowed: Collection[str], writes: bool) -> Networks:
    """Return the networks that may connect, after a check that the port is free.

    Raises:
        ConfigError: A package is missing, an address is invalid, ``allowed`` is required and empty, or pages on other
            hosts would be allowed to write.
        InUseError: Another program uses the port.
    """
    require_page()
    networks = parse_networks(host, allowed, "the page")
    if writes and networks:
        raise ConfigError(
            "the token would cross the network in plain text",
            hint="Make the page read-only for other hosts, or listen on loopback and use an SSH tunnel.",
        )
    open_listener(host, port, _OPTION).close()
    return networks


class PageServer:
    """Serves the web page of a bench until it is closed, as a context manager.

    Args:
        port: TCP port; 0 selects any free port.
        host: Address to listen on.
        allowed: Addresses of other hosts that may connect; required if ``host`` is not loopback.
        writes: Whether pages may change the bench (they need the token and the lease).

    Attributes:
        token: Token for changes; empty if pages are read-only.

    Raises:
        ConfigError: A package is missing, an address is invalid, ``allowed`` is required and empty, or pages on other
            hosts would be allowed to write.
        InUseError: Another program uses the port.
    """

    def __init__(
        self,
        owner: BenchOwner,
        *,
        port: int = 0,
        host: str = LOOPBACK,
        allowed: Collection[str] = (),
        writes: bool = False,
    ) -> None:
        networks = check_page(host, port, allowed, writes)
        import uvicorn

        from lumion_hw.serving.page.actions import PageActions
        from lumion_hw.serving.page.app import PageApp
        from lumion_hw.serving.page.guard import PatientProtocol, host_names
        from lumion_hw.serving.page.stream import UpdateStream

        self._socket = open_listener(host, port, _OPTION)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # connections inherit it
        actual_port = self._socket.getsockname()[1]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{actual_port}/"
        actions = PageActions(owner) if writes else None
        self.token = "" if actions is None else actions.token
        self.stream = UpdateStream(owner, _about(owner, writes))
        app = PageApp(owner, self.stream, actions).asgi(host_names(host), networks)
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=int(_END_S),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="lumion-page", daemon=True)
        self._started = threading.Event()
        self._thread.start()
        self._await_start()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        from lumion_hw.serving.page.guard import LoopErrorLog

        asyncio.get_running_loop().set_exception_handler(LoopErrorLog())
        await self._server.serve(sockets=[self._socket])

    def _await_start(self) -> None:
        try:
            with socket.create_connection(self._socket.getsockname()[:2], _START_S) as probe:
                probe.sendall(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                probe.recv(1)
        except OSError as error:
            self.close()
            raise LinkError("the page server does not answer", address=self.address) from error

    def close(self) -> None:
        """Notify the pages and close all connections. A second call has no effect."""
        self.stream.close()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _about(owner: BenchOwner, writes: bool) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from lumion_hw.bench.file.known_kinds import kind_named

    model = owner.bench.model
    feeds = {path.polarization: path.transponder for path in owner.bench.wiring.inputs if path.polarization}
    devices = []
    together = () if model.mesh is None else model.mesh.controllers or ()  # these have their readings as one device
    for name, device in model.devices.items():
        if name in together:
            continue
        kind = kind_named(device.kind)
        role = "" if kind is None else kind.role.label
        devices.append({"name": name, "kind": device.kind, "role": role, "feeds": feeds.get(name) or ""})
    try:
        installed_version = version("lumion-hw")
    except PackageNotFoundError:
        installed_version = ""
    ends = {
        "sources": sorted({path.transponder for path in owner.bench.wiring.inputs if path.transponder}),
        "targets": sorted({path.transponder for path in owner.bench.wiring.outputs if path.transponder}),
    }
    return {
        "devices": devices,
        "writes": writes,
        "version": installed_version,
        "description": model.description or "",
        **ends,
    }
