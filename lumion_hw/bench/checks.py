"""Checks between the parts of a bench file: names that exist, ports and channels used once, servers that are wired.

They read plain data, so that they also run on a file with other mistakes, and everything wrong is reported at once.
Parts of the wrong type are skipped here: the models report them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lumion_hw.bench.devices import (
    DEVICE_KINDS,
    LASER_KINDS,
    MESH_KINDS,
    METER_KINDS,
    MODULE_KINDS,
    N_CHANNELS,
    OPTIMIZER_KINDS,
    POLARIMETER_KINDS,
    POLARIZATION_KINDS,
    SENSOR_CHANNELS,
    channels_of_module,
)
from lumion_hw.bench.layout import layout_problems, topology_of
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.mesh import MeshTopology

Path = tuple[str | int, ...]

_NO_CONTROLLER = (
    "expected no polarization controller at a tributary, found {name!r}: behind the splitter-rotator the light is TE "
    "already, and one before it turns both tributaries alike, which no power shows and the receiver undoes"
)


@dataclass(frozen=True)
class Check:
    """One thing that does not fit.

    Attributes:
        path: Where in the file.
        message: What was expected and what was found.
        other: The other place concerned, if there is one.
        on_key: The key itself is at fault, not its value.
    """

    path: Path
    message: str
    other: Path | None = None
    on_key: bool = False


def path_text(path: Path) -> str:
    """Return a path as people write it: ``wiring.inputs[2].port``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(whole file)"


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest choice, or an empty string."""
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return f". Did you mean {close[0]!r}?" if close else ""


def cross_check(data: object) -> list[Check]:
    """Return everything in a bench file that contradicts another part of it, in the order of the file's sections.

    Args:
        data: The file as plain dictionaries and lists, valid or not.
    """
    bench = _Bench(_mapping(data))
    return [problem for check in _CHECKS for problem in check(bench)]


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass
class _Uses:
    """Who used what first."""

    first: dict[object, Path] = field(default_factory=dict)

    def claim(self, what: object, path: Path, thing: str) -> Iterator[Check]:
        """Yield a problem if ``what`` is used already."""
        earlier = self.first.setdefault(what, path)
        if earlier != path:
            yield Check(path, f"expected {thing} to be used once, found it used by {path_text(earlier)} too", earlier)


class _Bench:
    """A lenient view of a bench file."""

    def __init__(self, data: Mapping[Any, Any]) -> None:
        self.devices = {name: _mapping(device) for name, device in _mapping(data.get("devices")).items()}
        self.has_mesh = "mesh" in data
        self.mesh = _mapping(data.get("mesh"))
        wiring = _mapping(data.get("wiring"))
        self.inputs = [(("wiring", "inputs", i), _mapping(p)) for i, p in enumerate(_items(wiring.get("inputs")))]
        self.outputs = [(("wiring", "outputs", i), _mapping(p)) for i, p in enumerate(_items(wiring.get("outputs")))]
        self.servers = [(("servers", i), _mapping(s)) for i, s in enumerate(_items(data.get("servers")))]
        self.fabric = _mapping(data.get("fabric"))

    def of_kind(self, *kinds: str) -> list[str]:
        """Return the names of the devices of some kinds."""
        return [name for name, device in self.devices.items() if isinstance(name, str) and device.get("kind") in kinds]

    def controller(self) -> Mapping[Any, Any]:
        """Return the device that the mesh names as its controller, or nothing."""
        name = self.mesh.get("controller")
        return self.devices.get(name, {}) if isinstance(name, str) else {}

    def reference(self, path: Path, name: object, *kinds: str) -> Iterator[Check]:
        """Yield a problem if ``name`` is not a device of one of these kinds."""
        if not isinstance(name, str):
            return
        kind = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
        if name not in self.devices:
            hint = did_you_mean(name, self.of_kind(*kinds))
            yield Check(path, f"expected the name of a device of kind {kind}, found {name!r}, which is not there{hint}")
            return
        found = self.devices[name].get("kind")
        if isinstance(found, str) and found in DEVICE_KINDS and found not in kinds:
            message = f"expected the name of a device of kind {kind}, found {name!r}, which is of kind {found}"
            yield Check(path, message, ("devices", name))

    def server_reference(self, path: Path, name: object) -> Iterator[Check]:
        """Yield a problem if ``name`` is not a server."""
        names = [server.get("name") for _, server in self.servers]
        if isinstance(name, str) and name not in names:
            hint = did_you_mean(name, [known for known in names if isinstance(known, str)])
            yield Check(path, f"expected the name of a server, found {name!r}, which is not in servers{hint}")

    def topology(self) -> MeshTopology | None:
        """Return the mesh, or ``None`` if the file does not give a valid one."""
        try:
            return topology_of(self.mesh)
        except ConfigError:
            return None


def _devices(bench: _Bench) -> Iterator[Check]:
    addresses, serials, ports = _Uses(), _Uses(), _Uses()
    for name, device in bench.devices.items():
        kind, address, serial = device.get("kind"), device.get("address"), device.get("serial")
        if isinstance(address, str):
            yield from addresses.claim(address, ("devices", name, "address"), f"address {address}")
        for key in ("emulated_port", "emulated_hislip_port"):
            if _is_index(device.get(key)):
                yield from ports.claim(device[key], ("devices", name, key), f"port {device[key]} of this computer")
        if isinstance(serial, str) and isinstance(kind, str):
            thing = f"serial number {serial!r} of a {kind}"
            yield from serials.claim((kind, serial), ("devices", name, "serial"), thing)
        for index, module in enumerate(_items(device.get("modules"))):
            if isinstance(module, str) and "*" not in module:  # Q8iv-**** has no number yet
                yield from serials.claim(module, ("devices", name, "modules", index), f"module {module!r}")


def _mainframes(bench: _Bench) -> Iterator[Check]:
    """Check that a laser in a mainframe has one that can hold it, and has it to itself."""
    holders = _Uses()
    for name, device in bench.devices.items():
        path: Path = ("devices", name, "mainframe")
        mainframe = device.get("mainframe")
        if not isinstance(mainframe, str) or device.get("kind") != "keysight-laser":
            continue
        yield from bench.reference(path, mainframe, "keysight-816x")
        holder = bench.devices.get(mainframe, {})
        wanted, found = device.get("model") or "8164B", holder.get("model") or "8164B"
        if holder.get("kind") == "keysight-816x" and "model" in device and "model" in holder and wanted != found:
            message = f"expected the model of the mainframe, {found}, found {wanted}"
            yield Check(("devices", name, "model"), message, ("devices", mainframe, "model"))
        elif isinstance(found, str) and not found.startswith("8164"):
            message = f"expected an 8164A or 8164B, found {mainframe!r}, an {found}, which has no slot 0"
            yield Check(path, message, ("devices", mainframe))
        yield from holders.claim(mainframe, path, f"slot 0 of {mainframe!r}")


def _mesh(bench: _Bench) -> Iterator[Check]:
    yield from bench.reference(("mesh", "controller"), bench.mesh.get("controller"), *MESH_KINDS)
    if not bench.has_mesh:
        yield from (Check(base, "expected a section mesh, found none to wire to") for base, _ in bench.inputs)
        yield from (Check(base, "expected a section mesh, found none to wire to") for base, _ in bench.outputs)
    for problem in layout_problems(bench.mesh):
        there = problem.other_key is not None and problem.other_key in bench.mesh
        other: Path | None = ("mesh", str(problem.other_key)) if there else None
        yield Check(("mesh", problem.key), problem.message, other)


def _heaters(bench: _Bench) -> Iterator[Check]:
    mesh = bench.topology()
    if mesh is None:
        return
    given = _mapping(bench.mesh.get("heater_channels"))
    where = ("mesh", "heater_channels")
    users: dict[int, Path] = {}
    for puc in given:
        if _is_index(puc) and not 0 <= puc < mesh.n_pucs:
            yield Check((*where, puc), f"expected a PUC from 0 to {mesh.n_pucs - 1}, found {puc}", on_key=True)
    for puc in range(mesh.n_pucs):  # defaults first: a given channel then collides with the PUC that has it already
        if puc not in given:
            users |= {2 * puc: where, 2 * puc + 1: where}
    for puc, channels in given.items():
        for arm, channel in enumerate(_items(channels)):
            if not _is_index(channel):
                continue
            path = (*where, puc, arm)
            if channel < 0:
                yield Check(path, f"expected a drive channel from 0, found {channel}")
            elif channel in users:
                earlier = users[channel]
                by = f"PUC {channel // 2} by default" if earlier == where else path_text(earlier)
                other = None if earlier == where else earlier
                yield Check(path, f"expected drive channel {channel} to be used once, found it used by {by} too", other)
            users.setdefault(channel, path)


def _controller(bench: _Bench) -> Iterator[Check]:
    """Check what the kind of the mesh's controller allows."""
    mesh, name, device = bench.topology(), str(bench.mesh.get("controller")), bench.controller()
    kind = device.get("kind")
    if kind not in ("qontrol-q8", "smartlight-line-server"):
        return
    lacks = {"monitor_ports": "photodiodes", "heater_channels": "drive channels"}
    for key in ("monitor_ports",) if kind == "qontrol-q8" else lacks:
        if key in bench.mesh:
            message = f"expected no {key}: {name!r} is of kind {kind}, which has no {lacks[key]}"
            yield Check(("mesh", key), message, ("devices", name), on_key=True)
    if mesh is None:
        return
    if kind == "smartlight-line-server":
        n_pucs = device.get("n_pucs", 72)
        if _is_index(n_pucs) and n_pucs != mesh.n_pucs:
            path: Path = ("devices", name, "n_pucs") if "n_pucs" in device else ("mesh", "controller")
            yield Check(path, f"expected the {mesh.n_pucs} PUCs of the mesh, found {n_pucs}")
        return
    modules = [module for module in _items(device.get("modules")) if isinstance(module, str)]
    given = _mapping(bench.mesh.get("heater_channels"))
    channels = [c for p in range(mesh.n_pucs) for c in _items(given.get(p, (2 * p, 2 * p + 1))) if _is_index(c)]
    needed, there = max(channels, default=-1) + 1, sum(map(channels_of_module, modules))
    if modules and there < needed:
        path = ("devices", name, "modules")
        yield Check(path, f"expected modules with the {needed} drive channels that the mesh needs, found {there}")


def _monitors(bench: _Bench) -> Iterator[Check]:
    mesh, uses = bench.topology(), _Uses()
    for i, port in enumerate(_items(bench.mesh.get("monitor_ports"))):
        path = ("mesh", "monitor_ports", i)
        if mesh is not None and _is_index(port):
            yield from _port_exists(mesh, path, port)
            yield from uses.claim(port, path, f"port {port}")


def _port_exists(mesh: MeshTopology, path: Path, port: int) -> Iterator[Check]:
    if not 0 <= port < mesh.n_ports:
        yield Check(path, f"expected a port from 0 to {mesh.n_ports - 1}, found {port}")


def _ports(bench: _Bench) -> Iterator[Check]:
    mesh, uses = bench.topology(), _Uses()
    for base, fibre in (*bench.inputs, *bench.outputs):
        port, path = fibre.get("port"), (*base, "port")
        if mesh is None or not isinstance(port, int) or isinstance(port, bool):
            continue
        yield from _port_exists(mesh, path, port)
        if 0 <= port < mesh.n_ports and port not in mesh.fibre_ports:
            ports = _ranges(mesh.fibre_ports)
            yield Check(path, f"expected a port with a fibre ({ports}), found port {port}, which has none")
        yield from uses.claim(port, path, f"port {port}")


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ``0-21, 34-39``."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True))


def _fibres(bench: _Bench) -> Iterator[Check]:
    controllers, polarimeters, lasers = _Uses(), _Uses(), _Uses()
    for fibres in (bench.inputs, bench.outputs):
        modules = _Uses()
        for base, fibre in fibres:
            module, path = fibre.get("transponder"), (*base, "transponder")
            yield from bench.reference(path, module, *MODULE_KINDS)
            if not isinstance(module, str):
                continue
            tributary, side = fibre.get("tributary"), base[1].removesuffix("s")
            if tributary is not None and bench.devices.get(module, {}).get("kind") == "sfp-8472":
                found = f"{module!r}, an SFP+ module, which has no tributaries"
                yield Check((*base, "tributary"), f"expected a module of two tributaries, found {found}")
            part = f"tributary {tributary} of " if tributary is not None else ""
            yield from modules.claim((module, tributary), path, f"the {side} of {part}{module!r}")
            mixed = modules.first.get((module, None)) if tributary else None
            if mixed is not None:
                yield Check(path, f"expected a tributary at each {side} of {module!r}, found one without", mixed)
    for base, fibre in bench.inputs:
        yield from _one_source(base, fibre)
        laser, path = fibre.get("laser"), (*base, "laser")
        yield from bench.reference(path, laser, *LASER_KINDS)
        if isinstance(laser, str):
            yield from lasers.claim(laser, path, f"laser {laser!r}")
        controller, path = fibre.get("polarization"), (*base, "polarization")
        yield from bench.reference(path, controller, *POLARIZATION_KINDS, *OPTIMIZER_KINDS)
        if isinstance(controller, str):
            yield from controllers.claim(controller, path, f"polarization controller {controller!r}")
        if isinstance(controller, str) and isinstance(fibre.get("tributary"), str):
            yield Check(path, _NO_CONTROLLER.format(name=controller), (*base, "tributary"), on_key=True)
        polarimeter, path = fibre.get("polarimeter"), (*base, "polarimeter")
        yield from bench.reference(path, polarimeter, *POLARIMETER_KINDS)
        if isinstance(polarimeter, str):
            yield from polarimeters.claim(polarimeter, path, f"polarimeter {polarimeter!r}")


def _one_source(base: Path, fibre: Mapping[Any, Any]) -> Iterator[Check]:
    """Check that an input is fed by a module or by a laser, and that what only modules have is left to them."""
    if "laser" not in fibre and "transponder" not in fibre:
        yield Check(base, "expected one of the keys transponder, laser; found neither")
    if "laser" not in fibre:
        return
    if "transponder" in fibre:
        found = "expected either transponder or laser, found both"
        yield Check((*base, "laser"), found, (*base, "transponder"), on_key=True)
    if fibre.get("tributary") is not None:
        found = f"expected a module of two tributaries, found the laser {fibre['laser']!r}, which has none"
        yield Check((*base, "tributary"), found)


def _taps(bench: _Bench) -> Iterator[Check]:
    uses = _Uses()
    for base, fibre in bench.outputs:
        tap = _mapping(fibre.get("tap"))
        if "transponder" not in fibre and "tap" not in fibre:
            yield Check(base, "expected one of the keys transponder, tap; found neither")
        if "transponder" in fibre and tap and tap.get("fraction", 1.0) == 1.0:
            found = "found the number 1" if "fraction" in tap else "found none, which stands for 1"
            message = f"expected less than 1, {found}: no light would be left for the transponder"
            yield Check((*base, "tap", "fraction") if "fraction" in tap else (*base, "tap"), message)
        path: Path = (*base, "tap", "channel")
        meter, channel = tap.get("meter"), tap.get("channel")
        yield from bench.reference((*base, "tap", "meter"), meter, *METER_KINDS)
        if not isinstance(meter, str) or not isinstance(channel, int) or isinstance(channel, bool):
            continue
        device = bench.devices.get(meter, {})
        kind = device.get("kind")
        model = device.get("model", "N7745A") if kind == "keysight-n77xx" else kind
        n_channels = N_CHANNELS.get(model) if isinstance(model, str) else None
        if kind == "keysight-816x" and "modules" in device:
            n_channels = sum(
                SENSOR_CHANNELS.get(it, 0) for it in _mapping(device["modules"]).values() if isinstance(it, str)
            )
        if n_channels is not None and channel > n_channels:
            message = f"expected a channel from 1 to {n_channels} ({meter!r} is a {model}), found {channel}"
            yield Check(path, message, ("devices", meter))
        yield from uses.claim((meter, channel), path, f"channel {channel} of {meter!r}")


def _servers(bench: _Bench) -> Iterator[Check]:
    names, owners = _Uses(), _Uses()
    lit = [fibre.get("transponder") for _, fibre in bench.inputs]
    heard = [fibre.get("transponder") for _, fibre in bench.outputs]
    for base, server in bench.servers:
        name = server.get("name")
        if isinstance(name, str):
            yield from names.claim(name, (*base, "name"), f"server name {name!r}")
        for i, nic in enumerate(_items(server.get("nics"))):
            path = (*base, "nics", i)
            unknown = list(bench.reference(path, nic, *MODULE_KINDS))
            yield from unknown
            if unknown or not isinstance(nic, str):
                continue
            yield from owners.claim(nic, path, f"module {nic!r}")
            missing = [side for side, wired in (("inputs", lit), ("outputs", heard)) if nic not in wired]
            if missing:
                yield Check(path, f"expected a wired module, found {nic!r}, which is not in wiring.{missing[0]}")


def _fabric(bench: _Bench) -> Iterator[Check]:
    named = [(server.get("name"), len(_items(server.get("nics")))) for _, server in bench.servers]
    n_nics = {name: count for name, count in named if isinstance(name, str)}
    busy = _Uses()
    for i, pair in enumerate(_items(bench.fabric.get("pairs"))):
        ends = _items(pair)
        for j, name in enumerate(ends):
            path = ("fabric", "pairs", i, j)
            yield from bench.server_reference(path, name)
            if isinstance(name, str):
                yield from busy.claim(name, path, f"server {name!r}")
        counts = [n_nics[name] for name in ends if isinstance(name, str) and name in n_nics]
        if len(counts) == 2 and counts[0] != counts[1]:
            found = f"{ends[0]!r} with {counts[0]} and {ends[1]!r} with {counts[1]}"
            yield Check(("fabric", "pairs", i), f"expected two servers with as many NICs, found {found}")
    for i, name in enumerate(_items(bench.fabric.get("spares"))):
        where: Path = ("fabric", "spares", i)
        yield from bench.server_reference(where, name)
        if isinstance(name, str):
            yield from busy.claim(name, where, f"server {name!r}")


_CHECKS: tuple[Callable[[_Bench], Iterator[Check]], ...] = (
    _devices,
    _mainframes,
    _mesh,
    _heaters,
    _controller,
    _monitors,
    _ports,
    _fibres,
    _taps,
    _servers,
    _fabric,
)
