"""Other people's clients, opened on our servers; each is skipped with the reason when it is not installed."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.waiting import until

_PACKAGES = {
    "pylablib": ("pylablib-lightweight", "interop"),
    "qmi": ("qmi", "interop"),
    "pymeasure": ("PyMeasure", "test"),
    "itla": ("pytla", "test"),
}
"""The package on the index and the extra that brings it, by the name that is imported."""


@contextlib.contextmanager
def serving() -> Iterator[EmulatorServer]:
    """Yield a server that runs."""
    with EmulatorServer(SystemClock()) as server, server.in_thread():
        yield server


def module(name: str) -> ModuleType:
    """Import one of their modules, inside a test: every worker collects all tests, and these take a second to load.

    What they import warns of its own end (pkg_resources, xdrlib).
    """
    package = name.partition(".")[0]
    on_index, extra = _PACKAGES[package]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(package, reason=f"needs the package {on_index}: pip install 'lumion-hw[{extra}]'")
        return importlib.import_module(name)


def pty(server: EmulatorServer, device: Any, folder: Path) -> str:
    """Serve a device on a pseudo-terminal; return its path."""
    if sys.platform == "win32":
        pytest.skip("no pseudo-terminals on Windows")
    path = Path(server.add_pty(device, folder / device.name).removeprefix("serial://"))
    until(path.exists)
    return str(path)


@contextlib.contextmanager
def qmi_instrument(kind: Callable[..., Any], transport: str) -> Iterator[Any]:
    """Open one of QMI's instruments in a context that is not started: that would listen on every interface."""
    context = module("qmi.core.context").QMI_Context("lumion")
    instrument = kind(context, "instrument", transport)
    instrument.open()
    try:
        yield instrument
    finally:
        instrument.close()


def qmi_tcp(server: EmulatorServer, device: Any) -> str:
    """Serve a device on TCP; return its address as QMI writes it."""
    return server.add_tcp(device).replace("tcp://", "tcp:")
