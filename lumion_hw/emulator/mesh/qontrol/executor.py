"""Execution of host requests by the Qontrol modules, and their replies (Qontrol API documentation)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from lumion_hw.emulator.mesh.qontrol.errors import (
    BAD_CHANNEL,
    BAD_PARAMETER,
    NOT_READABLE_CHANNEL,
    UNKNOWN,
    Refused,
    error_line,
)
from lumion_hw.emulator.mesh.qontrol.module import EmulatedQ8
from lumion_hw.emulator.mesh.qontrol.profile import ChainProfile
from lumion_hw.emulator.mesh.qontrol.requests import ReceivedRequest
from lumion_hw.emulator.mesh.qontrol.table import HELP_LINES, Mode

OK = "OK"
ENUMERATED = "\x06OK"

_QUANTITIES = frozenset({"V", "I", "VMAX", "IMAX"})
_CALIBRATIONS = frozenset({"VCAL", "ICAL"})
_NOT_READABLE = frozenset({"VERR", "IERR", "ROCOM"})
_FULL_WORD = 0xFFFF
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_LENIENT = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Executor:
    """Executes requests on the modules of a chain.

    Args:
        modules: The present modules, in order; may change between requests.
    """

    def __init__(self, profile: ChainProfile, modules: Sequence[EmulatedQ8]) -> None:
        self._profile = profile
        self._modules = modules

    def execute(self, request: ReceivedRequest, at_s: float) -> list[str]:
        """Execute a request and return the lines of the reply. Raises ``Refused`` if the reply is an error."""
        if request.mode in Mode.READ | Mode.READ_ALL:
            return self._read(request, at_s)
        if request.command.name == "HELP":
            return list(HELP_LINES)
        return self._write(request, at_s)

    # -- addresses

    @property
    def n_channels(self) -> int:
        """Number of channels of all present modules."""
        return sum(module.n_channels for module in self._modules)

    def locate(self, request: ReceivedRequest) -> tuple[int, int]:
        """Return index and channel of the module that a request addresses. Raises ``Refused`` if there is none."""
        channel = request.channel or 0
        if request.module_number is not None:
            for index, module in enumerate(self._modules):
                if module.spec.number == request.module_number and channel < module.n_channels:
                    return index, channel
            raise Refused(BAD_CHANNEL, channel)
        return self._locate(channel)

    def _locate(self, channel: int) -> tuple[int, int]:
        remaining = channel
        for index, module in enumerate(self._modules):
            if remaining < module.n_channels:
                return index, remaining
            remaining -= module.n_channels
        raise Refused(BAD_CHANNEL, channel)

    # -- reads

    def _read(self, request: ReceivedRequest, at_s: float) -> list[str]:
        name = request.command.name
        if name in _NOT_READABLE:
            raise Refused(UNKNOWN, NOT_READABLE_CHANNEL)
        if name == "HELP":
            return list(HELP_LINES)
        by_channel = _CHANNEL_READS.get(name)
        if request.mode is Mode.READ_ALL:
            if by_channel is not None:
                return [
                    by_channel(self, index, local)
                    for index, module in enumerate(self._modules)
                    for local in range(module.n_channels)
                ]
            return [line for index in range(len(self._modules)) for line in self._module_lines(name, index, at_s)]
        if by_channel is not None and request.channel is None:
            raise Refused(BAD_PARAMETER)
        index, local = self.locate(request)
        return self._module_lines(name, index, at_s) if by_channel is None else [by_channel(self, index, local)]

    def _vip(self, index: int, local: int) -> str:
        module = self._modules[index]
        voltage, current = module.read_v(local), module.read_ma(local)
        line = f"{index},{local}: {voltage:+.4f} V, {current:+.4f} mA"
        # Power and resistance are reported for channels with a load only; the threshold is not published.
        if current < self._profile.long_form_ma:
            return line
        return f"{line}, {voltage * current:8.4f} mW, {int(max(voltage / current, 0.0) * 1e3):6d} Ohm"

    def _module_lines(self, name: str, index: int, at_s: float) -> list[str]:
        module = self._modules[index]
        if name in module.numbers:
            return [str(module.numbers[name])]
        if name == "LOG":
            return module.log_lines(at_s)
        if name == "NVM":
            pairs = zip(module.nvm[::2], module.nvm[1::2], strict=True)
            return [f"{2 * i:02X} : 0x{a:04X},  {2 * i + 1:02X} : 0x{b:04X}" for i, (a, b) in enumerate(pairs)]
        return [_MODULE_READS[name](module, index, at_s)]

    # -- writes

    def _write(self, request: ReceivedRequest, at_s: float) -> list[str]:
        name = request.command.name
        if name == "NUP":
            index, _ = self.locate(request)
            # One line per module from the addressed one to the end; the value does not matter (recorded).
            return [ENUMERATED] * (len(self._modules) - index)
        targets = self._targets(request)
        if name in _QUANTITIES:
            return self._write_quantity(request, targets, at_s)
        if name == "P":
            return self._write_power(request, targets[0], at_s)
        if request.mode is not Mode.ACTION and name in _CALIBRATIONS:
            words = tuple(self._integer(request, value_index) for value_index in range(self._require_count(request, 4)))
            for index, local, _ in targets:
                self._modules[index].calibration[name][local] = words
        elif request.mode is not Mode.ACTION and name in self._modules[0].numbers:
            number = self._integer(request, self._require_count(request, 1) - 1)
            for index, _, _ in targets:
                self._modules[index].numbers[name] = number
        return [OK] * len({index for index, _, _ in targets})

    def _targets(self, request: ReceivedRequest) -> list[tuple[int, int, int]]:
        """Return the targets of a write: module index, channel in the module, and index of the value."""
        if request.mode is Mode.WRITE_ALL:
            return [(*self._locate(channel), 0) for channel in range(self.n_channels)]
        if request.mode is Mode.VECTOR:
            return self._vector_targets(request)
        if request.channel is None and request.command.name in _QUANTITIES | _CALIBRATIONS | {"P"}:
            raise Refused(BAD_PARAMETER)
        return [(*self.locate(request), 0)]

    def _vector_targets(self, request: ReceivedRequest) -> list[tuple[int, int, int]]:
        """Return the targets of a write to several channels. Raises ``Refused`` for forbidden parts of modules."""
        index, local = self.locate(request)
        first = sum(module.n_channels for module in self._modules[:index]) + local
        last = first + request.count
        if request.count == 0 or last > self.n_channels:
            raise Refused(BAD_PARAMETER)
        targets = [(*self._locate(channel), value_index) for value_index, channel in enumerate(range(first, last))]
        final = targets[-1]
        covers_modules = local == 0 and final[1] == self._modules[final[0]].n_channels - 1
        if not (covers_modules or self._profile.short_vectors):
            raise Refused(BAD_PARAMETER)
        return targets

    def _write_quantity(self, request: ReceivedRequest, targets: list[tuple[int, int, int]], at_s: float) -> list[str]:
        if request.mode is not Mode.VECTOR:
            self._require_count(request, 1)
        name = request.command.name
        # A malformed number invalidates the whole request; a value above a limit only the values of its module.
        for value_index in range(request.count):
            self._number(request, value_index, 1.0)
        lines = []
        for index in sorted({index for index, _, _ in targets}):
            module = self._modules[index]
            full = module.spec.ifull_ma if name.startswith("I") else module.spec.vfull_v
            values = [
                (local, self._number(request, value_index, full)) for i, local, value_index in targets if i == index
            ]
            try:
                for local, value in values:
                    module.check(name, local, value)
            except Refused as refused:
                module.log_error(refused.code, refused.channel, at_s)
                lines.append(error_line(refused.code, refused.channel))
                continue
            for local, value in values:
                module.set(name, local, value, at_s)
            lines.append(OK)
        return lines

    def _write_power(self, request: ReceivedRequest, target: tuple[int, int, int], at_s: float) -> list[str]:
        """Set the current for a power in mW (older firmware; the unit is assumed)."""
        self._require_count(request, 1)
        index, local, _ = target
        module = self._modules[index]
        current = module.channels[local].load.current_for_power_ma(self._number(request, 0, 1.0))
        module.check("I", local, current)
        module.set("I", local, current, at_s)
        return [OK]

    # -- values

    def _require_count(self, request: ReceivedRequest, count: int) -> int:
        if request.count != count:
            raise Refused(BAD_PARAMETER)
        return count

    def _number(self, request: ReceivedRequest, value_index: int, full: float) -> float:
        """Return one value of a request in V or mA; ``full`` is the full scale."""
        if request.words is not None:
            return request.words[value_index] / _FULL_WORD * full
        text = request.fields[value_index]
        if (_LENIENT if self._profile.exponents else _NUMBER).fullmatch(text) is None:
            raise Refused(BAD_PARAMETER)
        value = float(text)
        if value < 0.0 and not self._profile.negatives:
            raise Refused(BAD_PARAMETER)
        return max(value, 0.0)  # outputs are unipolar

    def _integer(self, request: ReceivedRequest, value_index: int) -> int:
        if request.words is not None:
            return request.words[value_index]
        if _INTEGER.fullmatch(request.fields[value_index]) is None:
            raise Refused(BAD_PARAMETER)
        return int(request.fields[value_index])


def _volt(value: float) -> str:
    return f"{value:+.4f} V"


def _milliampere(value: float) -> str:
    return f"{value:+.4f} mA"


def _calibration(name: str) -> Callable[[Executor, int, int], str]:
    def line(executor: Executor, index: int, local: int) -> str:
        return ",".join(f"{word:+d}" for word in executor._modules[index].calibration[name][local])

    return line


_CHANNEL_READS: Mapping[str, Callable[[Executor, int, int], str]] = {
    "V": lambda executor, index, local: _volt(executor._modules[index].read_v(local)),
    "I": lambda executor, index, local: _milliampere(executor._modules[index].read_ma(local)),
    "VMAX": lambda executor, index, local: _volt(executor._modules[index].channels[local].vmax_v),
    "IMAX": lambda executor, index, local: _milliampere(executor._modules[index].channels[local].imax_ma),
    "VCAL": _calibration("VCAL"),
    "ICAL": _calibration("ICAL"),
    "VIP": Executor._vip,
}

_MODULE_READS: Mapping[str, Callable[[EmulatedQ8, int, float], str]] = {
    "VFULL": lambda module, index, at_s: _volt(module.spec.vfull_v),
    "IFULL": lambda module, index, at_s: _milliampere(module.spec.ifull_ma),
    "NCHAN": lambda module, index, at_s: str(module.n_channels),
    "FIRMWARE": lambda module, index, at_s: module.spec.firmware,
    "LIFETIME": lambda module, index, at_s: f"{module.lifetime_s(at_s)} s",
    "ID": lambda module, index, at_s: module.spec.device_id,
    "NUP": lambda module, index, at_s: f"{module.spec.device_id}: {index}",
}
