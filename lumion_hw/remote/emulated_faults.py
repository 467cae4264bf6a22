"""Scripted faults of a bench that is emulated in another process, or in this one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from lumion_hw.errors import ConnectError, FrameError, LinkLost
from lumion_hw.files.json_text import json_text
from lumion_hw.files.reading import parse_json
from lumion_hw.remote.codec import decode_error

CONTROL = "@faults"
"""Key of the fault control in an endpoints file, beside the names of the devices."""
_TIMEOUT_S = 10.0
_NAME = "the fault control of the emulated bench"
_HINT = "Check that `lumion emulate` runs, and use the endpoints file that it wrote."


class EmulatedFaults:
    """Injects and clears scripted faults of an emulated bench; ``docs/faults.md`` lists faults and arguments.

    Arguments are numbers or texts: ``modules="sfp-a,sfp-b"``, ``trajectory_k="0:0,60:2.5"`` for 2.5 K within 60 s. All
    methods raise ``ConfigError`` for a wrong name, ``LimitError`` for an argument out of range and ``LinkError`` if the
    emulator does not respond. An error leaves the bench unchanged.

    Args:
        send: Sends a request (action, target, fault, arguments) to the emulated bench and returns the result.

    Attributes:
        request: The function ``send``.
    """

    def __init__(self, send: Callable[[str, str, str, Mapping[str, Any]], Any]) -> None:
        self.request = send

    def inject(self, target: str, fault: str, **arguments: Any) -> None:
        """Start a fault of a device, or of the bench (target ``bench``), now.

        Raises ``ConfigError`` if the fault is active already.
        """
        self.request("inject", target, fault, arguments)

    def clear(self, target: str, fault: str, **arguments: Any) -> None:
        """End a fault; arguments are necessary only if it is active several times.

        Raises ``ConfigError`` if the fault is not active or cannot be ended.
        """
        self.request("clear", target, fault, arguments)

    def list_faults(self, target: str = "bench") -> list[dict[str, Any]]:
        """Return the faults of a device or of the bench: ``fault``, ``arguments``, ``effect``, ``can_clear``."""
        return list(self.request("list", target, "", {}))

    def active(self) -> list[dict[str, Any]]:
        """Return the active faults that were injected from outside.

        Each has ``target``, ``fault``, ``arguments`` and ``can_clear``. A fault that cannot be cleared lasts until
        the emulation ends.
        """
        return list(self.request("active", "", "", {}))


class FaultPortClient:
    """Sends requests to the fault control of ``lumion emulate``; every call uses a connection of its own.

    Args:
        address: ``tcp://127.0.0.1:PORT/SECRET``, from the endpoints file.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._where, self._secret = (parts.hostname or "", parts.port or 0), parts.path.strip("/")

    def __call__(self, action: str, target: str, fault: str, arguments: Mapping[str, Any]) -> Any:
        """Send a request and return the result.

        Raises:
            ConnectError: The emulator does not run.
            LinkLost: The emulator ended; the request may or may not have been executed.
            LumionError: The error of the emulator.
        """
        request = {
            "secret": self._secret,
            "action": action,
            "target": target,
            "fault": fault,
            "arguments": dict(arguments),
        }
        reply = parse_json(self._exchange(json_text(request, compact=True).encode() + b"\n"), "the reply")
        if not isinstance(reply, dict) or not reply.keys() & {"error", "result"}:
            raise FrameError(f"{_NAME} sent an invalid reply", hint=_HINT)
        if "error" in reply:
            raise decode_error(reply["error"])
        return reply["result"]

    def is_reachable(self) -> bool:
        """Return whether a program listens at the address."""
        try:
            socket.create_connection(self._where, _TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def _exchange(self, line: bytes) -> bytes:
        try:
            connection = socket.create_connection(self._where, _TIMEOUT_S)
        except OSError as error:
            raise ConnectError(f"{_NAME} does not respond: {error}", hint=_HINT) from error
        try:
            with connection, connection.makefile("rb") as replies:
                connection.sendall(line)
                reply = replies.readline()
        except OSError as error:
            raise LinkLost(f"{_NAME} was lost: {error}", hint=_HINT) from error
        if not reply.endswith(b"\n"):
            raise LinkLost(f"{_NAME} closed the connection", hint=_HINT)
        return reply
