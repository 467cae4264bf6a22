"""Control of the scripted faults of an emulated bench by another process."""

from __future__ import annotations

import hmac
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lumion_hw.emulator.faults.bench_faults import BenchFaults
from lumion_hw.emulator.faults.fault_table import MODULE_DEAD, ScriptedFault, find_fault
from lumion_hw.errors import ConfigError, LinkLost, LumionError
from lumion_hw.files.json_text import json_text
from lumion_hw.files.reading import parse_json

_MAX_LINE = 1 << 16
_SUPPLY = {"kill_modules": "inject", "revive_modules": "clear"}
"""Faults of the bench that start or end the fault ``module_dead`` of each module."""

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class _Active:
    """A fault that was started, with its arguments as they were given."""

    target: str
    row: ScriptedFault
    arguments: dict[str, Any]


class FaultControl:
    """Lists, starts and ends the faults of an emulated bench, and keeps account of the active ones.

    Arguments of faults are JSON values or texts, such as those of a command line.
    """

    def __init__(self, faults: BenchFaults) -> None:
        self._faults = faults
        self._active: dict[tuple[Any, ...], _Active] = {}
        self._numbers = itertools.count()

    def perform(self, action: str, target: str = "", fault: str = "", arguments: Arguments | None = None) -> Any:
        """Carry out a request and return its result as JSON values.

        Args:
            action: ``inject`` or ``clear``; ``list`` for the faults of a target; ``active`` for the active faults.
            target: Device name, or ``bench``.
            fault: Name of the fault.
            arguments: Arguments of the fault.

        Raises:
            ConfigError: A name or an argument is wrong, the fault is active already (``inject``), or it is not active
                or cannot be ended (``clear``). Nothing was changed.
            LimitError: An argument is out of range. Nothing was changed.
        """
        actions: dict[str, Callable[[], Any]] = {
            "inject": lambda: self._inject(target, fault, arguments or {}),
            "clear": lambda: self._clear(target, fault, arguments or {}),
            "list": lambda: self._list(target),
            "active": self._list_active,
        }
        if action not in actions:
            raise ConfigError(f"the fault control has no action {action!r}", hint=f"It has {', '.join(actions)}.")
        return actions[action]()

    def _list(self, target: str) -> list[dict[str, Any]]:
        return [
            {"fault": row.name, "arguments": row.signature(), "effect": row.effect, "can_clear": row.end is not None}
            for row in self._faults.list_faults(target)
        ]

    def _list_active(self) -> list[dict[str, Any]]:
        self._forget_ended()
        return [
            {
                "target": each.target,
                "fault": each.row.name,
                "arguments": dict(each.arguments),
                "can_clear": each.row.end is not None,
            }
            for each in self._active.values()
        ]

    def _inject(self, target: str, fault: str, arguments: Arguments) -> None:
        row = find_fault(self._faults.list_faults(target), fault, target)
        values = _values(row, arguments)
        if self._supplies(target, fault):
            self._supply(fault, row.validated(values, {})["modules"])
            return
        key = self._key(target, row, values)
        self._forget_ended()
        if key in self._active:
            ends = "Clear it first." if row.end is not None else "It lasts as long as the emulation."
            raise ConfigError(
                f"the fault {fault}{_listing(self._active[key].arguments)} is active already", device=target, hint=ends
            )
        self._faults.inject(target, fault, **values)
        if not row.is_momentary:
            self._active[key] = _Active(target, row, dict(arguments))

    def _clear(self, target: str, fault: str, arguments: Arguments) -> None:
        row = find_fault(self._faults.list_faults(target), fault, target)
        values = _values(row, arguments)
        if self._supplies(target, fault):
            (opposite,) = _SUPPLY.keys() - {fault}
            raise ConfigError(
                f"{fault} cannot be cleared", device=target, hint=f"Inject {opposite} with the same modules instead."
            )
        if row.end is None:
            self._faults.end(target, fault, **values)  # raises the error that lists the faults that end
        self._forget_ended()
        prefix = self._key(target, row, {})[:2]
        matches = [
            key
            for key, each in self._active.items()
            if key[:2] == prefix and _values(row, each.arguments | values) == _values(row, each.arguments)
        ]
        if not matches and not row.may_precede:
            active = [f"{each.target} {each.row.name}{_listing(each.arguments)}" for each in self._active.values()]
            raise ConfigError(
                f"the fault {fault}{_listing(arguments)} is not active",
                device=target,
                hint=f"Active faults: {'; '.join(active) or 'none'}.",
            )
        if len(matches) > 1:
            texts = "; ".join(_listing(self._active[key].arguments).strip() for key in matches)
            raise ConfigError(
                f"the fault {fault} is active several times", device=target, hint=f"Give one of: {texts}."
            )
        ending = self._active[matches[0]].arguments if matches else arguments
        self._faults.end(target, fault, **_values(row, ending))
        for key in matches:
            del self._active[key]

    def _supplies(self, target: str, fault: str) -> bool:
        return fault in _SUPPLY and target not in self._faults.device_names

    def _supply(self, fault: str, modules: tuple[str, ...]) -> None:
        """Start or end ``module_dead`` of all modules, or raise an error before the first."""
        self._faults.check_modules(modules)
        self._forget_ended()
        keys = {
            name: self._key(name, find_fault(self._faults.list_faults(name), MODULE_DEAD, name), {}) for name in modules
        }
        starts = _SUPPLY[fault] == "inject"
        wrong = [name for name, key in keys.items() if (key in self._active) == starts]
        if wrong:
            state = "dead already" if starts else "not dead"
            raise ConfigError(f"{fault}: {', '.join(wrong)}: {state}", hint="Nothing was changed.")
        for name in keys:
            (self._inject if starts else self._clear)(name, MODULE_DEAD, {})

    def _key(self, target: str, row: ScriptedFault, values: Arguments) -> tuple[Any, ...]:
        """Return what identifies a fault that can be active once: device, name and the component on which it acts."""
        owner = target if target not in self._faults.device_names else self._faults.device(target).name
        components = (argument.name for argument in row.arguments if argument.component_kind)
        numbers = [values.get(name) for name in components]
        if row.end is None and not row.happens_once:  # started again, it adds to the first
            numbers.append(next(self._numbers))
        return owner, row.name, *(float(n) if isinstance(n, int | float) else repr(n) for n in numbers)

    def _forget_ended(self) -> None:
        """Forget the faults that have ended by themselves."""
        for key, each in list(self._active.items()):
            if each.row.is_present is not None and not each.row.is_present(self._faults.target(each.target)):
                del self._active[key]


def _values(row: ScriptedFault, arguments: Arguments) -> dict[str, Any]:
    """Return the arguments of a fault with texts converted; unknown ones stay as they are."""
    by_name = {argument.name: argument for argument in row.arguments}
    return {
        name: by_name[name].from_text(row.name, value) if isinstance(value, str) and name in by_name else value
        for name, value in arguments.items()
    }


def _listing(arguments: Arguments) -> str:
    text = " ".join(f"{name}={value}" for name, value in arguments.items())
    return text and f" ({text})"


class FaultPort:
    """Serves a :class:`FaultControl` to other processes: one JSON object per line, and one line in reply.

    Args:
        control: The faults.
        secret: Text that every request must contain.
        encode_error: Returns an error as JSON values.

    Attributes:
        name: Name of the port in messages.
    """

    name = "fault control"

    def __init__(self, control: FaultControl, secret: str, encode_error: Callable[[LumionError], Any]) -> None:
        self._control, self._secret, self._encode_error = control, secret, encode_error

    def connect(self) -> _Connection:
        """Open a connection."""
        return _Connection(self)

    def advance(self) -> None:
        """Do nothing: the port has no time."""

    def next_due(self) -> float | None:
        """Return ``None``: nothing happens without a request."""
        return None

    def answer(self, line: bytes) -> bytes:
        """Return the reply to one request: ``{"result": ...}`` or ``{"error": ...}``."""
        try:
            request = parse_json(line, "the request")
            if not _is_request(request):
                raise ConfigError("a request is an object of texts with an object 'arguments'")
            if not hmac.compare_digest(request.pop("secret", "").encode(), self._secret.encode()):
                raise ConfigError(
                    "the secret of the request is wrong", hint="Use the endpoints file of the running `lumion emulate`."
                )
            reply = {"result": self._control.perform(**request)}
        except LumionError as error:
            reply = {"error": self._encode_error(error)}
        return json_text(reply, compact=True).encode() + b"\n"


def _is_request(request: Any) -> bool:
    names = {"secret", "action", "target", "fault", "arguments"}
    return (
        isinstance(request, dict)
        and {"action"} <= request.keys() <= names
        and isinstance(request.get("arguments", {}), dict)
        and all(isinstance(value, str) for name, value in request.items() if name != "arguments")
    )


class _Connection:
    """One connection to a :class:`FaultPort`."""

    def __init__(self, port: FaultPort) -> None:
        self._port = port
        self._received, self._replies = bytearray(), bytearray()

    def receive(self, data: bytes) -> None:
        """Receive bytes and answer every complete line. Raises ``LinkLost`` for a line that is too long."""
        self._received += data
        *lines, rest = bytes(self._received).split(b"\n")
        self._received[:] = rest
        for line in lines:
            self._replies += self._port.answer(line)
        if len(rest) > _MAX_LINE:
            raise LinkLost("the request is too long")

    def transmit(self) -> bytes:
        """Return the replies."""
        replies = bytes(self._replies)
        self._replies.clear()
        return replies

    def next_event(self) -> float | None:
        """Return the present for waiting replies."""
        return 0.0 if self._replies else None

    def close(self) -> None:
        """Close the connection."""
