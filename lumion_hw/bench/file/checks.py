"""Checks between parts of a bench file: names exist, ports and channels are used once, servers are wired."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lumion_hw.bench.file.layout import default_heater_channels, layout_problems, topology_of
from lumion_hw.bench.file.roles import Role
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.mesh.layout.topology import MeshTopology

Path = tuple[str | int, ...]

_NO_CONTROLLER = (
    "expected no polarization controller at a tributary, found {name!r}: after the splitter-rotator the light is "
    "already TE, and a controller before it has no effect that the meters show or the receiver needs"
)


@dataclass(frozen=True)
class Check:
    """A contradiction in a bench file.

    Attributes:
        message: The expected value and the value in the file.
        other: Path of the contradicting part of the file, if any.
        on_key: Whether the key is wrong, not its value.
    """

    path: Path
    message: str
    other: Path | None = None
    on_key: bool = False


def path_text(path: Path) -> str:
    """Return a path in a bench file as text, such as ``wiring.inputs[2].port``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(whole file)"


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """Return `` Did you mean 'x'?`` with the closest choice, or an empty string."""
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return f". Did you mean {close[0]!r}?" if close else ""


def no_check(bench: BenchData, name: str) -> Iterator[Check]:
    """Yield nothing: the default of kinds without checks of their own."""
    return iter(())


class CheckedKind(Protocol):
    """The part of :class:`lumion_hw.bench.file.kind.DeviceKind` that the checks use."""

    @property
    def role(self) -> Role:
        """Role of the device kind, such as power meter."""

    @property
    def channels(self) -> Callable[[Mapping[Any, Any]], tuple[int, str] | None]:
        """Return the number of channels of a power meter or an attenuator."""

    @property
    def media_lanes(self) -> Callable[[Mapping[Any, Any]], int]:
        """Return how many media lanes of a module can be wired one by one."""

    @property
    def check(self) -> Callable[[BenchData, str], Iterator[Check]]:
        """Check the bench-file keys that only this kind of device has."""


class CheckedKinds(Protocol):
    """The usable kinds of devices, by name."""

    def get(self, name: str) -> CheckedKind | None:
        """Return the device kind with this name, or ``None``."""

    def with_role(self, *roles: Role) -> list[str]:
        """Return the names of the device kinds with one of the given roles."""


def cross_check(data: object, kinds: CheckedKinds) -> list[Check]:
    """Return all contradictions between parts of a bench file, in the order of its sections.

    Args:
        data: The file as dictionaries and lists; may contain other mistakes.
        kinds: The usable kinds of devices.
    """
    bench = BenchData(mapping(data), kinds)
    return [problem for check in _CHECKS for problem in check(bench)]


def mapping(value: object) -> Mapping[Any, Any]:
    """Return the value if it is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """Return the value if it is a list or tuple, otherwise an empty tuple."""
    return value if isinstance(value, list | tuple) else ()


def is_index(value: object) -> bool:
    """Return whether a value is an integer (not a Boolean)."""
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass
class Uses:
    """Ports and channels that may be used only once, with the path of the first use."""

    first: dict[object, Path] = field(default_factory=dict)

    def claim(self, resource: object, path: Path, label: str) -> Iterator[Check]:
        """Yield a problem if the resource is already in use."""
        # Only the second use is reported as a mistake; its message gives the line of the first use.
        former = self.first.setdefault(resource, path)
        if former != path:
            yield Check(path, f"expected {label} to be used once, but it is also used by {path_text(former)}", former)


@dataclass
class PartedUses:
    """Ports and channels that several fibres may share if a switch or a person connects only one fibre at a time.

    Attributes:
        users: For each port or channel, the fibres that use it, with their paths in the file.
    """

    users: dict[object, list[tuple[Path, Mapping[Any, Any]]]] = field(default_factory=dict)

    def claim(self, resource: object, path: Path, fibre: Mapping[Any, Any], label: str) -> Iterator[Check]:
        """Yield a problem if another fibre uses the same port or channel and nothing selects between the two fibres."""
        users = self.users.setdefault(resource, [])
        for former, other in users:
            if not (_are_switched(fibre, other) or (_is_by_hand(fibre) and _is_by_hand(other))):
                message = f"expected {label} to be used once, but it is also used by {path_text(former)}"
                yield Check(path, message, former)
                break
        users.append((path, fibre))


def _are_switched(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> bool:
    """Return whether a switch selects between two fibres: they share a port on one side of the switch only."""
    switches = [
        [(d.get("device"), d.get("enters"), d.get("leaves")) for d in _inline_devices(fibre) if "leaves" in d]
        for fibre in (first, second)
    ]
    return any(a[0] == b[0] and (a[1] == b[1]) != (a[2] == b[2]) for a in switches[0] for b in switches[1])


def _is_by_hand(fibre: Mapping[Any, Any]) -> bool:
    return fibre.get("by_hand") is True or mapping(fibre.get("tap")).get("by_hand") is True


def _inline_devices(fibre: Mapping[Any, Any]) -> list[Mapping[Any, Any]]:
    return [mapping(part) for part in items(fibre.get("through"))]


class BenchData:
    """Bench-file data that may contain mistakes."""

    def __init__(self, data: Mapping[Any, Any], kinds: CheckedKinds) -> None:
        self._kinds = kinds
        self.devices = {name: mapping(device) for name, device in mapping(data.get("devices")).items()}
        self.has_mesh = "mesh" in data
        self.mesh = mapping(data.get("mesh"))
        wiring = mapping(data.get("wiring"))
        self.inputs = [(("wiring", "inputs", i), mapping(p)) for i, p in enumerate(items(wiring.get("inputs")))]
        self.outputs = [(("wiring", "outputs", i), mapping(p)) for i, p in enumerate(items(wiring.get("outputs")))]
        self.fibres = [(("wiring", "fibres", i), mapping(p)) for i, p in enumerate(items(wiring.get("fibres")))]
        self.loops = [(("wiring", "loops", i), mapping(p)) for i, p in enumerate(items(wiring.get("loops")))]
        self.reflectors = [
            (("wiring", "reflectors", i), mapping(p)) for i, p in enumerate(items(wiring.get("reflectors")))
        ]
        self.servers = [(("servers", i), mapping(s)) for i, s in enumerate(items(data.get("servers")))]
        self.fabric = mapping(data.get("fabric"))

    def lane(self, name: object) -> tuple[str, int] | None:
        """Return module and number of a media lane with a name such as ``dr4-a/2``; ``None`` for other names."""
        module, _, number = name.partition("/") if isinstance(name, str) else ("", "", "")
        return (module, int(number)) if number.isdigit() and module in self.devices else None

    def kind_of(self, name: object) -> CheckedKind | None:
        """Return the kind of a device, or ``None`` if the device or its kind does not exist."""
        kind = self.devices.get(name, {}).get("kind") if isinstance(name, str) else None
        return self._kinds.get(kind) if isinstance(kind, str) else None

    def controllers(self) -> tuple[str, ...]:
        """Return the names of the devices that drive the mesh."""
        names = items(self.mesh.get("controllers")) or (self.mesh.get("controller"),)
        return tuple(name for name in names if isinstance(name, str))

    def drives_mesh(self, name: str) -> bool:
        """Return whether a device drives the mesh, alone or with others."""
        return name in self.controllers()

    def reference(self, path: Path, name: object, *accepted: Role | str) -> Iterator[Check]:
        """Yield a problem if ``name`` is not a device with an accepted role or kind."""
        if not isinstance(name, str):
            return
        if (lane := self.lane(name)) is not None and Role.TRANSPONDER in accepted:
            yield from self._lane_reference(path, *lane)
            return
        kind_name = self.devices.get(name, {}).get("kind")
        kind = self.kind_of(name)
        if name in self.devices and (kind is None or kind.role in accepted or kind_name in accepted):
            return
        roles = [role for role in accepted if isinstance(role, Role)]
        kinds = [*(item for item in accepted if isinstance(item, str)), *self._kinds.with_role(*roles)]
        listed = " or ".join(filter(None, (", ".join(kinds[:-1]), *kinds[-1:])))
        expected = f"expected the name of a device of kind {listed}, found {name!r}, which is"
        if name in self.devices:
            yield Check(path, f"{expected} of kind {kind_name}", ("devices", name))
            return
        fitting = [key for key, device in self.devices.items() if isinstance(key, str) and device.get("kind") in kinds]
        yield Check(path, f"{expected} not in devices{did_you_mean(name, fitting)}")

    def _lane_reference(self, path: Path, module: str, number: int) -> Iterator[Check]:
        yield from (problems := list(self.reference(path, module, Role.TRANSPONDER)))
        kind = self.kind_of(module)
        count = 1 if kind is None else kind.media_lanes(self.devices[module])
        if not problems and count == 1:
            yield Check(path, f"expected {module!r}: this module has one media lane", ("devices", module))
        elif not problems and not 1 <= number <= count:
            message = f"expected a media lane from 1 to {count} of {module!r}, found {number}"
            yield Check(path, message, ("devices", module))

    def units(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the modules of each server and each accelerator."""
        modules: dict[str, tuple[str, ...]] = {}
        for _, server in self.servers:
            for unit in (server, *map(mapping, items(server.get("accelerators")))):
                name = unit.get("name")
                if isinstance(name, str):
                    modules[name] = tuple(nic for nic in items(unit.get("nics")) if isinstance(nic, str))
        return modules

    def unit_reference(self, path: Path, name: object) -> Iterator[Check]:
        """Yield a problem if ``name`` is neither a server nor an accelerator."""
        units = self.units()
        if isinstance(name, str) and name not in units:
            hint = did_you_mean(name, list(units))
            yield Check(path, f"expected the name of a server, found {name!r}, which is not in servers{hint}")

    def topology(self) -> MeshTopology | None:
        """Return the mesh, or ``None`` if the file contains no valid mesh."""
        try:
            return topology_of(self.mesh)
        except ConfigError:
            return None

    def channels_needed(self) -> int:
        """Return the number of drive channels that the mesh needs; 0 without a valid mesh."""
        mesh = self.topology()
        if mesh is None:
            return 0
        channels = mapping(self.mesh.get("heater_channels"))
        pairs = (items(channels.get(puc, default)) for puc, default in enumerate(default_heater_channels(mesh)))
        return max((channel for pair in pairs for channel in pair if is_index(channel)), default=-1) + 1


def _devices(bench: BenchData) -> Iterator[Check]:
    addresses, serials, ports = Uses(), Uses(), Uses()
    for name, device in bench.devices.items():
        kind, address, serial = device.get("kind"), device.get("address"), device.get("serial")
        if isinstance(address, str):
            yield from addresses.claim(address, ("devices", name, "address"), f"address {address}")
        for key in ("emulated_port", "emulated_hislip_port"):
            if is_index(device.get(key)):
                yield from ports.claim(device[key], ("devices", name, key), f"port {device[key]} of this computer")
        if isinstance(serial, str) and isinstance(kind, str):
            subject = f"serial number {serial!r} of a {kind}"
            yield from serials.claim((kind, serial), ("devices", name, "serial"), subject)
        for index, module in enumerate(items(device.get("modules"))):
            if isinstance(module, str) and "*" not in module:  # Q8iv-**** has no number yet
                yield from serials.claim(module, ("devices", name, "modules", index), f"module {module!r}")


def _kinds(bench: BenchData) -> Iterator[Check]:
    for name in bench.devices:
        kind = bench.kind_of(name)
        if kind is not None:
            yield from kind.check(bench, name)


def _controllers(bench: BenchData) -> Iterator[Check]:
    alone, names = bench.mesh.get("controller"), bench.mesh.get("controllers")
    where: Path = ("mesh", "controllers")
    joint = "+".join(bench.controllers())
    if names is None:
        if bench.has_mesh and alone is None:
            yield Check(("mesh", "controller"), "expected this key or controllers, found none")
        yield from bench.reference(("mesh", "controller"), alone, Role.MESH, Role.MESH_STATES)
    elif alone not in (None, joint):
        yield Check(where, "expected either controller or controllers, found both", ("mesh", "controller"), on_key=True)
    for name, device in bench.devices.items():
        parts = items(device.get("parts"))
        if parts and (names is None or name != joint or tuple(parts) != bench.controllers()):
            message = "expected no parts: list the controllers of the mesh in controllers of section mesh"
            yield Check(("devices", name, "parts"), message, on_key=True)
        elif isinstance(name, str) and "+" in name and not parts:
            yield Check(("devices", name), f"expected a name without +, found {name!r}", on_key=True)
    uses = Uses()
    for i, name in enumerate(items(names)):
        yield from (problems := list(bench.reference((*where, i), name, Role.MESH)))
        if problems or not isinstance(name, str):
            continue
        yield from uses.claim(name, (*where, i), f"controller {name!r}")
        lead, kind = bench.controllers()[0], bench.devices[name].get("kind")
        if kind != bench.devices.get(lead, {}).get("kind"):
            message = f"expected the kind of {lead!r}, because both drive one mesh, found {kind}"
            yield Check(("devices", name, "kind"), message, ("devices", lead))


def _mesh(bench: BenchData) -> Iterator[Check]:
    yield from _controllers(bench)
    yield from bench.reference(("mesh", "temperature"), bench.mesh.get("temperature"), Role.TEMPERATURE)
    if not bench.has_mesh:
        wired = (*bench.inputs, *bench.outputs, *bench.loops, *bench.reflectors)
        yield from (
            Check(base, "expected a section mesh, because this is wired to the mesh; found none") for base, _ in wired
        )
    for problem in layout_problems(bench.mesh):
        is_present = problem.other_key is not None and problem.other_key in bench.mesh
        other: Path | None = ("mesh", str(problem.other_key)) if is_present else None
        yield Check(("mesh", problem.key), problem.message, other)


def _heaters(bench: BenchData) -> Iterator[Check]:
    mesh = bench.topology()
    if mesh is None:
        return
    pairs_by_puc = mapping(bench.mesh.get("heater_channels"))
    where = ("mesh", "heater_channels")
    users: dict[int, Path] = {}
    for puc in pairs_by_puc:
        if is_index(puc) and not 0 <= puc < mesh.n_pucs:
            yield Check((*where, puc), f"expected a PUC from 0 to {mesh.n_pucs - 1}, found {puc}", on_key=True)
    defaults: dict[int, int] = {}
    for puc, pair in enumerate(default_heater_channels(mesh)):
        if puc not in pairs_by_puc:  # defaults first, so that a conflict is reported at the given channel
            defaults |= {channel: puc for channel in pair if channel is not None}
    users |= dict.fromkeys(defaults, where)
    for puc, channels in pairs_by_puc.items():
        for arm, channel in enumerate(items(channels)):
            if not is_index(channel):
                continue
            path = (*where, puc, arm)
            if is_index(puc) and 0 <= puc < mesh.n_pucs and not mesh.has_heater[2 * puc + arm]:
                message = f"expected null, because this cell ({mesh.cell_kinds[puc]}) has no heater on this arm"
                yield Check(path, f"{message}; found channel {channel}")
            elif channel < 0:
                yield Check(path, f"expected a drive channel from 0, found {channel}")
            elif channel in users:
                former = users[channel]
                by = f"PUC {defaults[channel]} by default" if former == where else path_text(former)
                other = None if former == where else former
                yield Check(path, f"expected drive channel {channel} to be used once, but {by} uses it too", other)
            users.setdefault(channel, path)


def _monitors(bench: BenchData) -> Iterator[Check]:
    mesh, uses = bench.topology(), Uses()
    for i, port in enumerate(items(bench.mesh.get("monitor_ports"))):
        path = ("mesh", "monitor_ports", i)
        if mesh is not None and is_index(port):
            yield from _port_exists(mesh, path, port)
            yield from uses.claim(port, path, f"port {port}")


def _port_exists(mesh: MeshTopology, path: Path, port: int) -> Iterator[Check]:
    if not 0 <= port < mesh.n_ports:
        yield Check(path, f"expected a port from 0 to {mesh.n_ports - 1}, found {port}")


def _ports(bench: BenchData) -> Iterator[Check]:
    mesh, uses = bench.topology(), PartedUses()
    ends: list[tuple[Path, object, Mapping[Any, Any]]] = [
        ((*base, "port"), fibre.get("port"), fibre) for base, fibre in (*bench.inputs, *bench.outputs)
    ]
    ends += [((*base, "port"), fibre.get("port"), {}) for base, fibre in bench.reflectors]
    ends += [
        ((*base, "ports", i), port, {}) for base, loop in bench.loops for i, port in enumerate(items(loop.get("ports")))
    ]
    for path, port, fibre in ends:
        if mesh is None or not isinstance(port, int) or isinstance(port, bool):
            continue
        yield from _port_exists(mesh, path, port)
        if 0 <= port < mesh.n_ports and port not in mesh.fibre_ports:
            ports = _ranges(mesh.fibre_ports)
            yield Check(path, f"expected a port with a fibre ({ports}), found port {port}, which has none")
        yield from uses.claim(port, path, {"through": fibre.get("through")}, f"port {port}")


def _ranges(numbers: Sequence[int]) -> str:
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True))


def _fibres(bench: BenchData) -> Iterator[Check]:
    controllers, polarimeters, lasers = Uses(), Uses(), PartedUses()
    for fibres in (bench.inputs, bench.outputs):
        modules = Uses()
        for base, fibre in fibres:
            module, path = fibre.get("transponder"), (*base, "transponder")
            yield from bench.reference(path, module, Role.TRANSPONDER)
            if not isinstance(module, str):
                continue
            tributary, side = fibre.get("tributary"), base[1].removesuffix("s")
            part = f"tributary {tributary} of " if tributary is not None else ""
            yield from modules.claim((module, tributary), path, f"the {side} of {part}{module!r}")
            yield from _whole_parallel_module(bench, module, path)
            mixed = modules.first.get((module, None)) if tributary else None
            if mixed is not None:
                yield Check(path, f"expected the key tributary at each {side} of {module!r}, but one has none", mixed)
    for base, fibre in bench.inputs:
        yield from _check_source(base, fibre)
        laser, path = fibre.get("laser"), (*base, "laser")
        yield from bench.reference(path, laser, Role.LASER)
        if isinstance(laser, str):
            yield from lasers.claim(laser, path, fibre, f"laser {laser!r}")
        controller, path = fibre.get("polarization"), (*base, "polarization")
        yield from bench.reference(path, controller, Role.POLARIZATION, Role.POLARIZATION_OPTIMIZER)
        if isinstance(controller, str):
            yield from controllers.claim(controller, path, f"polarization controller {controller!r}")
        if isinstance(controller, str) and isinstance(fibre.get("tributary"), str):
            yield Check(path, _NO_CONTROLLER.format(name=controller), (*base, "tributary"), on_key=True)
        polarimeter, path = fibre.get("polarimeter"), (*base, "polarimeter")
        yield from bench.reference(path, polarimeter, Role.POLARIMETER)
        if isinstance(polarimeter, str):
            yield from polarimeters.claim(polarimeter, path, f"polarimeter {polarimeter!r}")
    yield from _bypass_fibres(bench, lasers)


def _whole_parallel_module(bench: BenchData, name: str, path: Path) -> Iterator[Check]:
    """Yield a problem if a fibre names a module whose lanes have fibres of their own, instead of one of its lanes."""
    kind = bench.kind_of(name)
    count = 1 if kind is None or bench.lane(name) is not None else kind.media_lanes(bench.devices[name])
    if count > 1:
        message = f"expected one of the lanes of {name!r}, {name}/1 to {name}/{count}, each of which has its own fibre"
        yield Check(path, f"{message}; found the whole module", ("devices", name))


def _bypass_fibres(bench: BenchData, lasers: PartedUses) -> Iterator[Check]:
    senders, receivers = Uses(), Uses()
    for uses, fibres in ((senders, bench.inputs), (receivers, bench.outputs)):
        for base, fibre in fibres:
            module = fibre.get("transponder")
            if isinstance(module, str):
                uses.first.setdefault(module, (*base, "transponder"))
    for base, fibre in bench.fibres:
        yield from _check_source(base, fibre)
        laser = fibre.get("laser")
        yield from bench.reference((*base, "laser"), laser, Role.LASER)
        if isinstance(laser, str):
            yield from lasers.claim(laser, (*base, "laser"), fibre, f"laser {laser!r}")
        for key, uses, side in (("transponder", senders, "input"), ("receiver", receivers, "output")):
            module = fibre.get(key)
            yield from bench.reference((*base, key), module, Role.TRANSPONDER)
            if isinstance(module, str):
                yield from uses.claim(module, (*base, key), f"the {side} of {module!r}")
                yield from _whole_parallel_module(bench, module, (*base, key))
        if "receiver" not in fibre and not items(fibre.get("taps")):
            yield Check(base, "expected one of the keys receiver, taps; found neither")


def _devices_in_fibres(bench: BenchData) -> Iterator[Check]:
    uses = PartedUses()
    for base, fibre in (*bench.inputs, *bench.outputs, *bench.fibres):
        for i, part in enumerate(_inline_devices(fibre)):
            path, device = (*base, "through", i), part.get("device")
            yield from bench.reference((*path, "device"), device, *_INLINE_KEYS)
            kind = bench.kind_of(device)
            if not isinstance(device, str) or kind is None or kind.role not in _INLINE_KEYS:
                continue
            keys = _INLINE_KEYS[kind.role]
            for key in ("channel", "enters", "leaves"):
                if key in part and key not in keys:
                    yield Check((*path, key), f"expected no {key} of the {kind.role.label} {device!r}", on_key=True)
            missing = [key for key in keys if key not in part and key != "channel"]
            if missing:
                yield Check(
                    path, f"expected the keys enters and leaves of the switch {device!r}, found no {missing[0]}"
                )
            elif not all(is_index(part.get(key, 1)) for key in keys):
                continue
            elif kind.role is Role.SWITCH:
                yield from _switch_ports(kind, uses, path, part, fibre)
            else:
                channel = part.get("channel", 1)
                limit = kind.channels(bench.devices.get(device, {}))
                if limit is not None and channel > limit[0]:
                    message = f"expected a channel from 1 to {limit[0]} ({device!r} is a {limit[1]}), found {channel}"
                    yield Check((*path, "channel"), message, ("devices", device))
                label = f"channel {channel} of {device!r}" if keys else f"amplifier {device!r}"
                yield from uses.claim((device, channel), path, fibre, label)


def _switch_ports(
    kind: CheckedKind, uses: PartedUses, path: Path, part: Mapping[Any, Any], fibre: Mapping[Any, Any]
) -> Iterator[Check]:
    if part["enters"] != part["leaves"]:
        for key in ("enters", "leaves"):
            label = f"port {part[key]} of {part['device']!r}"
            yield from uses.claim((part["device"], part[key]), (*path, key), fibre, label)
    elif kind.check is no_check:
        yield Check((*path, "leaves"), f"expected another port than enters of {part['device']!r}, found the same port")


_INLINE_KEYS: Mapping[Role, tuple[str, ...]] = {
    Role.ATTENUATOR: ("channel",),
    Role.SWITCH: ("enters", "leaves"),
    Role.AMPLIFIER: (),
}
"""Keys of the devices in light paths in the wiring section, by role of the device."""


def _check_source(base: Path, fibre: Mapping[Any, Any]) -> Iterator[Check]:
    """Check that the source of a fibre is either a module or a laser; a laser must not have the key ``tributary``."""
    if "laser" not in fibre and "transponder" not in fibre:
        yield Check(base, "expected one of the keys transponder, laser; found neither")
    if "laser" not in fibre:
        return
    if "transponder" in fibre:
        message = "expected either transponder or laser, found both"
        yield Check((*base, "laser"), message, (*base, "transponder"), on_key=True)
    if fibre.get("tributary") is not None:
        message = f"expected a module with two tributaries, found the laser {fibre['laser']!r}, which has none"
        yield Check((*base, "tributary"), message)


def _taps(bench: BenchData) -> Iterator[Check]:
    uses = PartedUses()
    for base, fibre in (*bench.outputs, *bench.fibres):
        tap, further = mapping(fibre.get("tap")), [mapping(item) for item in items(fibre.get("taps"))]
        receives = "transponder" if base[1] == "outputs" else "receiver"
        if base[1] == "outputs" and not {"transponder", "tap", "taps"} & set(fibre):
            yield Check(base, "expected one of the keys transponder, tap, taps; found none")
        if receives in fibre and tap and tap.get("fraction", 1.0) == 1.0:
            actual = "found the number 1" if "fraction" in tap else "found none, which means 1"
            message = f"expected less than 1, {actual}: the transponder would get no light"
            yield Check((*base, "tap", "fraction") if "fraction" in tap else (*base, "tap"), message)
        elif further:
            yield from _fractions(base, [tap, *further] if tap else further, receives in fibre)
        ends: list[tuple[Path, Mapping[Any, Any], tuple[Role, ...]]] = []
        if tap:
            ends.append(((*base, "tap"), tap, (Role.METER,)))
        ends += [((*base, "taps", i), end, (Role.METER, Role.SPECTRUM_ANALYZER)) for i, end in enumerate(further)]
        for path, end, roles in ends:
            yield from bench.reference((*path, "meter"), end.get("meter"), *roles)
            yield from _meter_channel(bench, uses, (*path, "channel"), end, fibre)


def _by_hand(bench: BenchData) -> Iterator[Check]:
    for base, fibre in bench.inputs:
        if fibre.get("by_hand") is True:
            yield from _check_single_fibre(base, fibre, ("transponder", "polarization", "polarimeter", "through"))
    for base, fibre in bench.outputs:
        if _is_by_hand(fibre):
            yield from _check_single_fibre(base, fibre, ("transponder", "through", "taps"))
    for fibres, name_of in ((bench.inputs, _laser_name), (bench.outputs, _meter_name)):
        first: dict[object, tuple[bool, Path]] = {}
        for base, fibre in fibres:
            if (name := name_of(fibre)) is None:
                continue
            moved, former = first.setdefault(name[0], (_is_by_hand(fibre), base))
            if moved != _is_by_hand(fibre):
                where = base if moved else former
                message = f"expected by_hand: true as at the other ports of {name[1]}, found none"
                yield Check(where, message, former if moved else base)
    moved_lasers = dict.fromkeys(str(f.get("laser")) for _, f in bench.inputs if f.get("by_hand") is True)
    moved_meters = dict.fromkeys(name[1] for _, f in bench.outputs if _is_by_hand(f) and (name := _meter_name(f)))
    for moved_kind, names, section in (("laser", moved_lasers, "inputs"), ("meter channel", moved_meters, "outputs")):
        if len(names) > 1:
            message = f"expected one {moved_kind} that is moved by hand, found {len(names)}: {', '.join(names)}"
            yield Check(("wiring", section), message)


def _check_single_fibre(base: Path, fibre: Mapping[Any, Any], keys: Sequence[str]) -> Iterator[Check]:
    for key in keys:
        if fibre.get(key):
            message = f"expected no {key} in a fibre that is moved by hand (by_hand: true), found one"
            yield Check((*base, key), message, on_key=True)


def _laser_name(fibre: Mapping[Any, Any]) -> tuple[object, str] | None:
    laser = fibre.get("laser")
    return (laser, f"laser {laser!r}") if isinstance(laser, str) else None


def _meter_name(fibre: Mapping[Any, Any]) -> tuple[object, str] | None:
    tap = mapping(fibre.get("tap"))
    meter, channel = tap.get("meter"), tap.get("channel")
    if not isinstance(meter, str) or not is_index(channel):
        return None
    return (meter, channel), f"channel {channel} of {meter!r}"


def _fractions(base: Path, ends: Sequence[Mapping[Any, Any]], has_receiver: bool) -> Iterator[Check]:
    fractions = [value for end in ends if isinstance(value := end.get("fraction", 1.0), int | float)]
    total = sum(fractions)
    if total > 1.0 + 1e-9 or (has_receiver and total > 1.0 - 1e-9):
        limit = "less than 1, so that the transponder gets light" if has_receiver else "at most 1"
        yield Check((*base, "taps"), f"expected a sum of fractions of {limit}, found {total:g}")


def _meter_channel(
    bench: BenchData, uses: PartedUses, path: Path, end: Mapping[Any, Any], fibre: Mapping[Any, Any]
) -> Iterator[Check]:
    meter, channel = end.get("meter"), end.get("channel", 1 if path[-3] == "taps" else None)
    if not isinstance(meter, str) or not isinstance(channel, int) or isinstance(channel, bool):
        return
    kind = bench.kind_of(meter)
    limit = None if kind is None else kind.channels(bench.devices[meter])
    # Only if the file gives the number of channels; otherwise it is checked when the meter is opened.
    if limit is not None and channel > limit[0]:
        message = f"expected a channel from 1 to {limit[0]} ({meter!r} is a {limit[1]}), found {channel}"
        yield Check(path, message, ("devices", meter))
    yield from uses.claim((meter, channel), path, fibre, f"channel {channel} of {meter!r}")


def _servers(bench: BenchData) -> Iterator[Check]:
    names, owners = Uses(), Uses()
    transponders = [fibre.get("transponder") for _, fibre in bench.inputs]
    received = [fibre.get("transponder") for _, fibre in bench.outputs]
    for base, server in bench.servers:
        name = server.get("name")
        if isinstance(name, str):
            yield from names.claim(name, (*base, "name"), f"server name {name!r}")
        for i, nic in enumerate(items(server.get("nics"))):
            path = (*base, "nics", i)
            unknown = list(bench.reference(path, nic, Role.TRANSPONDER))
            yield from unknown
            if unknown or not isinstance(nic, str):
                continue
            yield from owners.claim(nic, path, f"module {nic!r}")
            missing = [side for side, wired in (("inputs", transponders), ("outputs", received)) if nic not in wired]
            if missing:
                yield Check(path, f"expected a wired module, found {nic!r}, which is not in wiring.{missing[0]}")
        nics, interfaces = items(server.get("nics")), items(server.get("interfaces"))
        if interfaces and len(interfaces) != len(nics):
            actual = f"{len(interfaces)} for {len(nics)} nics"
            yield Check((*base, "interfaces"), f"expected one interface per NIC, found {actual}")
        parts = Uses()
        for i, accelerator in enumerate(map(mapping, items(server.get("accelerators")))):
            where = (*base, "accelerators", i)
            if isinstance(accelerator.get("name"), str):
                own = accelerator["name"]
                yield from names.claim(own, (*where, "name"), f"server name {own!r}")
            for j, nic in enumerate(items(accelerator.get("nics"))):
                if isinstance(nic, str) and nic not in nics:
                    at = (*where, "nics", j)
                    yield Check(at, f"expected one of the server's nics, found {nic!r}", (*base, "nics"))
                elif isinstance(nic, str):
                    yield from parts.claim(nic, (*where, "nics", j), f"module {nic!r}")


def _fabric(bench: BenchData) -> Iterator[Check]:
    units, busy, names = bench.units(), Uses(), Uses()

    def used(path: Path, name: object) -> Iterator[Check]:
        yield from bench.unit_reference(path, name)
        nics = units.get(name, ()) if isinstance(name, str) else ()
        # Claimed by module, because an accelerator and its server share modules; one mistake is reported only once.
        yield from [problem for nic in nics for problem in busy.claim(nic, path, f"server {name!r}")][:1]

    for i, pair in enumerate(items(bench.fabric.get("pairs"))):
        for j, name in enumerate(items(pair)):
            yield from used(("fabric", "pairs", i, j), name)
        yield from _equal_nic_counts(("fabric", "pairs", i), items(pair), units)
    for i, job in enumerate(map(mapping, items(bench.fabric.get("jobs")))):
        base: Path = ("fabric", "jobs", i)
        members = items(job.get("members"))
        if isinstance(job.get("name"), str):
            yield from names.claim(job["name"], (*base, "name"), f"job name {job['name']!r}")
        for j, name in enumerate(members):
            yield from used((*base, "members", j), name)
        yield from _topology(base, job, members, units)
    for i, name in enumerate(items(bench.fabric.get("spares"))):
        yield from used(("fabric", "spares", i), name)


def _equal_nic_counts(path: Path, ends: Sequence[object], units: Mapping[str, Sequence[object]]) -> Iterator[Check]:
    counts = [len(units[name]) for name in ends if isinstance(name, str) and name in units]
    if len(counts) == 2 and counts[0] != counts[1]:
        actual = f"{ends[0]!r} with {counts[0]} and {ends[1]!r} with {counts[1]}"
        yield Check(path, f"expected two servers with equal numbers of NICs, found {actual}")


def _topology(
    base: Path, job: Mapping[Any, Any], members: Sequence[object], units: Mapping[str, Sequence[object]]
) -> Iterator[Check]:
    shape, links = job.get("topology", "pair"), items(job.get("links"))
    if shape == "pair":
        if len(members) != 2:
            yield Check((*base, "members"), f"expected two members of a pair, found {len(members)}")
        yield from _equal_nic_counts((*base, "members"), members, units)
    if (shape == "links") != bool(links):
        actual = "none" if shape == "links" else f"links with topology {shape}"
        yield Check((*base, "links"), f"expected the key links if and only if the topology is links, found {actual}")
    needed: dict[str, int] = {}
    for i, link in enumerate(links):
        for j, name in enumerate(items(link)):
            if name not in members:
                yield Check((*base, "links", i, j), f"expected a member of the job, found {name!r}")
            elif isinstance(name, str):
                needed[name] = needed.get(name, 0) + 1
    for name, count in needed.items():
        if name in units and count > len(units[name]):
            yield Check((*base, "links"), f"expected at most {len(units[name])} links of {name!r}, found {count}")


_CHECKS: tuple[Callable[[BenchData], Iterator[Check]], ...] = (
    _devices,
    _kinds,
    _mesh,
    _heaters,
    _monitors,
    _ports,
    _fibres,
    _devices_in_fibres,
    _taps,
    _by_hand,
    _servers,
    _fabric,
)


def trigger_check(bench: BenchData, name: str) -> Iterator[Check]:
    """Check that the trigger source of a power meter is a laser of the bench."""
    yield from bench.reference(("devices", name, "triggered_by"), bench.devices[name].get("triggered_by"), Role.LASER)
