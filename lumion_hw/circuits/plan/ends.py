"""Ends of circuits: modules that fit each other, their fibres, and the polarization of the light."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.file.module_optics import ModuleFormat, ModuleOptics
from lumion_hw.circuits.plan.budget import NO_LIMIT_DBM
from lumion_hw.circuits.plan.planned import PlannedCircuit, Strategy
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.errors import CircuitError, NoPathError, name_hint
from lumion_hw.interfaces.wiring import InputPath, OutputPath, Wiring
from lumion_hw.mesh.layout.topology import MeshTopology

_SAME_CARRIER_NM = 0.029
"""Largest wavelength difference between a carrier and a coherent receiver, 3.6 GHz (400ZR)."""


@dataclass(frozen=True)
class CircuitEnds:
    """Both ends of a circuit.

    Attributes:
        entries: Fibres from the transmitter to the mesh, one per arm.
        exits: Fibres from the mesh to the receiver, in the order of the entries.
        sender: Optical properties of the transmitting module.
        receiver: Optical properties of the receiving module.
        format: Line format of both modules.
        strategy: How the polarization is handled.
        reason: Reason for this strategy, as a sentence.
    """

    request: CircuitRequest
    entries: tuple[InputPath, ...]
    exits: tuple[OutputPath, ...]
    sender: ModuleOptics
    receiver: ModuleOptics
    format: ModuleFormat
    strategy: Strategy
    reason: str

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Input and output port of each arm (path of one polarization)."""
        return tuple((entry.port, output.port) for entry, output in zip(self.entries, self.exits, strict=True))

    def can_match(self, mesh: MeshTopology) -> bool:
        """Return whether paths of both polarizations can have equally many PUCs (docs/mesh.md#routes)."""
        return len({mesh.port_parity(*pair) for pair in self.pairs} - {None}) < 2


def circuit_ends(model: BenchModel, wiring: Wiring, mesh: MeshTopology, request: CircuitRequest) -> CircuitEnds:
    """Return the modules and fibres at both ends of a circuit.

    Raises:
        CircuitError: A module is not wired to the mesh, or the two modules do not fit; the message names the
            difference.
    """
    if any(path.laser == request.source for path in wiring.inputs):
        raise CircuitError(
            f"circuit {request}: {request.source} is a laser, which carries no data",
            hint="Name a transmitting module; lasers are for calibration.",
        )
    entries, exits = wiring.inputs_of(request.source), wiring.outputs_of(request.target)
    if not entries:
        raise _not_wired(model, wiring, request, request.source, "transmitter")
    if not exits:
        raise _not_wired(model, wiring, request, request.target, "receiver")
    sender = (
        _arriving_signal(request) if request.source not in model.devices else _optics(model, request, request.source)
    )
    receiver = _passing(sender) if request.target not in model.devices else _optics(model, request, request.target)
    used = _common_format(request, sender, receiver)
    _check_wavelengths(request, sender, receiver)
    _check_polarizations(request, sender, receiver)
    entries, exits, strategy, reason = _arms(mesh, request, sender, entries, exits)
    return CircuitEnds(request, entries, exits, sender, receiver, used, strategy, reason)


def _arriving_signal(request: CircuitRequest) -> ModuleOptics:
    """Return the signal that arrives through a fibre from another mesh."""
    if request.signal is None:
        raise CircuitError(
            f"circuit {request}: {request.source} is the end of a fibre from another mesh, and not a module",
            hint="Connect modules on different benches with `lumion joined connect`.",
        )
    if request.signal.polarizations != 1:
        raise CircuitError(
            f"circuit {request}: its signal has two polarizations, and a fibre between meshes carries one",
            hint="Connect modules with one polarization, such as SFP+.",
        )
    return request.signal


def _passing(sender: ModuleOptics) -> ModuleOptics:
    """Return the receiver that stands for a fibre to another mesh; only the last bench checks the power."""
    return replace(
        sender, receives_nm=(0.0, math.inf), sensitivity_dbm=-NO_LIMIT_DBM, overload_dbm=NO_LIMIT_DBM, max_dgd_ps=None
    )


def _optics(model: BenchModel, request: CircuitRequest, name: str) -> ModuleOptics:
    optics = model.devices[name].optics
    if optics is None:
        raise CircuitError(
            f"circuit {request}: kind {model.devices[name].kind} of {name} has no optical properties",
            hint="Add 'optics' to its model (lumion_hw.bench.ModuleOptics).",
        )
    return optics


def _difference_error(request: CircuitRequest, field: str, sends: str, receives: str, hint: str) -> CircuitError:
    return CircuitError(
        f"circuit {request} cannot work: {field} differs: {request.source} sends {sends}, {request.target} receives "
        f"{receives}",
        hint=hint,
    )


def _common_format(request: CircuitRequest, sender: ModuleOptics, receiver: ModuleOptics) -> ModuleFormat:
    for sent in sender.formats:
        for received in receiver.formats:
            if (sent.name, sent.rate_gbps) == (received.name, received.rate_gbps):
                return received
    # If a name agrees, only the rates differ, and the message can say so.
    names = {sent.name for sent in sender.formats} & {received.name for received in receiver.formats}
    texts = [
        ", ".join(f"{format_.rate_gbps:g} Gb/s" if names else format_.name for format_ in side.formats)
        for side in (sender, receiver)
    ]
    field = "rate" if names else "line format"
    raise _difference_error(request, field, texts[0], texts[1], "Connect modules of the same line format.")


def _check_wavelengths(request: CircuitRequest, sender: ModuleOptics, receiver: ModuleOptics) -> None:
    shortest, longest = receiver.receives_nm
    outside_nm = [nm for nm in sender.wavelengths_nm if not shortest <= nm <= longest]
    if outside_nm:
        receives = f"{shortest:g} to {longest:g} nm"
        raise _difference_error(
            request, "wavelength", f"{outside_nm[0]:.2f} nm", receives, "See 'devices' in the bench file."
        )
    # A coherent receiver uses its own laser as local oscillator, so it only sees the frequency it is tuned to.
    is_tuned = sender.polarizations == receiver.polarizations == 2
    if is_tuned and abs(sender.emits_nm - receiver.emits_nm) > _SAME_CARRIER_NM:
        sends, receives = (f"at {end.emits_nm:.3f} nm" for end in (sender, receiver))
        raise _difference_error(request, "wavelength", sends, receives, "Give both modules the same frequency_thz.")


def _check_polarizations(request: CircuitRequest, sender: ModuleOptics, receiver: ModuleOptics) -> None:
    texts = {1: "one polarization", 2: "two polarizations"}
    if sender.polarizations != receiver.polarizations:
        counts = (texts[sender.polarizations], texts[receiver.polarizations])
        raise _difference_error(request, "number of polarizations", *counts, "Connect modules of the same line format.")
    requested = {"auto": sender.polarizations, "single": 1, "dual": 2}[request.polarization]
    if requested != sender.polarizations:
        raise CircuitError(
            f"circuit {request} cannot work: polarization={request.polarization!r} was requested, but the signal of "
            f"{request.source} has {texts[sender.polarizations]}",
            hint="Leave polarization at 'auto'.",
        )


_Arms = tuple[tuple[InputPath, ...], tuple[OutputPath, ...], Strategy, str]


def _arms(
    mesh: MeshTopology,
    request: CircuitRequest,
    sender: ModuleOptics,
    entries: tuple[InputPath, ...],
    exits: tuple[OutputPath, ...],
) -> _Arms:
    split = len(entries) == 2
    if (split or sender.polarizations == 2) and (len(entries), len(exits)) != (2, 2):
        side = "inputs" if len(entries) != 2 else "outputs"
        name = request.source if side == "inputs" else request.target
        reason = (
            "its signal has two polarizations, and one path through the mesh carries only one"
            if sender.polarizations == 2
            else f"{request.source} is split, and both parts have to be combined again"
        )
        raise CircuitError(
            f"circuit {request} cannot work: {name} has one entry in wiring.{side} and needs two, tributary x and y: "
            f"{reason}",
            hint="Put a polarization splitter-rotator or combiner there.",
        )
    if split:
        # Two tributaries at the input exist either for a signal of two polarizations, or to catch one polarization that
        # the fibre turns arbitrarily.
        strategy: Strategy = "dual" if sender.polarizations == 2 else "diversity"
        return (*_paired(mesh, entries, exits), strategy, _REASONS[strategy])
    entry = entries[0]
    if entry.polarization is not None:
        reason = _REASONS["controller"].format(controller=entry.polarization)
        return (entry,), exits[:1], "controller", reason
    return (entry,), exits[:1], "none", _REASONS["none"]


_REASONS: dict[Strategy, str] = {
    "controller": "The mesh accepts one polarization, and the fibre turns it arbitrarily. Controller {controller} in "
    "front of the mesh turns it back; it is found by a power search at the output and tracked in service.",
    "diversity": "A splitter-rotator sends both parts of the polarization to the mesh, each as TE on its own path, and "
    "a combiner adds them. This works for any fibre polarization without a controller. The paths are equally long.",
    "none": "There is neither a controller nor a splitter at the input. The loss assumes that the light arrives as TE, "
    "as behind polarization-maintaining fibre; a random polarization loses more than 10 dB in one case of ten.",
    "dual": "The signal has two polarizations, and a splitter-rotator gives each its own path as TE. "
    "The receiver compensates any rotation of both together, so no controller is needed (and power would not show it). "
    "The paths must have equal length and loss.",
}


def _paired(
    mesh: MeshTopology, entries: tuple[InputPath, ...], exits: tuple[OutputPath, ...]
) -> tuple[tuple[InputPath, ...], tuple[OutputPath, ...]]:
    first = tuple(sorted(entries, key=lambda entry: entry.tributary or ""))
    straight = tuple(sorted(exits, key=lambda output: output.tributary or ""))
    # Exchanging the tributaries is a rotation like any other, which the receiver compensates.
    crossed = straight[::-1]

    def longer(outs: tuple[OutputPath, ...]) -> tuple[int, int]:
        hops = sorted(int(mesh.shortest_hops[a.port, b.port]) for a, b in zip(first, outs, strict=True))
        return hops[1], hops[0]

    return first, crossed if longer(crossed) < longer(straight) else straight


def pairings(ends: tuple[CircuitEnds, ...]) -> Iterator[tuple[CircuitEnds, ...]]:
    """Yield the circuit ends unchanged, then with the outputs of the two polarizations exchanged."""
    yield ends
    for index, circuit in enumerate(ends):
        if len(circuit.exits) == 2:
            yield (*ends[:index], replace(circuit, exits=circuit.exits[::-1]), *ends[index + 1 :])


def check_modules(ends: Sequence[CircuitEnds], active: Sequence[PlannedCircuit]) -> None:
    """Check that no two circuits use one transmitter or one receiver.

    Raises:
        NoPathError: Two new circuits, or a new and an active one, use the same transmitter or receiver.
    """
    for role, hint in (("transmitter", "sends to one receiver"), ("receiver", "receives from one transmitter")):
        users: dict[str, str] = {}
        for name, request in (
            *((f"the active circuit {circuit.request}", circuit.request) for circuit in active),
            *((f"circuit {end.request}", end.request) for end in ends),
        ):
            module = request.source if role == "transmitter" else request.target
            if module in users:
                raise NoPathError(
                    f"{users[module]} and {name} need the same {role}, {module}",
                    hint=f"A module {hint} at a time: leave out or disconnect one of the circuits.",
                )
            users[module] = name


def _not_wired(
    model: BenchModel, wiring: Wiring, request: CircuitRequest, name: str, part: Literal["transmitter", "receiver"]
) -> CircuitError:
    modules = _wired_modules(wiring)
    if modules:
        hint = name_hint(name, modules, "The wired modules are")
    else:
        hint = (
            "A circuit needs a module at both ends (`transponder` in wiring.inputs and wiring.outputs), and this bench "
            "wires none to the mesh. To set paths between ports, use `lumion mesh program`."
        )
    if name in modules:
        key = "inputs" if part == "transmitter" else "outputs"
        return CircuitError(
            f"circuit {request}: the {part} of {name} is not wired to the mesh",
            hint=f"Swap the two ends, or add {name} to wiring.{key} in the bench file.",
        )
    if name in model.devices:
        return CircuitError(
            f"circuit {request}: {name} is not wired to the mesh", hint="See 'wiring' in the bench file."
        )
    ends = {str(path.port): path.source for path in wiring.inputs}
    ends |= {str(path.port): path.transponder or path.all_taps[0].meter for path in wiring.outputs}
    if name not in ends:
        return CircuitError(f"circuit {request}: {name} is not wired to the mesh", hint=hint)
    hint = f"Give {ends[name]} instead." if ends[name] in modules else hint
    return CircuitError(f"circuit {request}: {name} is a port, wired to {ends[name]}, not a module", hint=hint)


def _wired_modules(wiring: Wiring) -> list[str]:
    paths: tuple[InputPath | OutputPath, ...] = (*wiring.inputs, *wiring.outputs)
    return sorted({path.transponder for path in paths if path.transponder is not None})
