"""Where circuits begin and end: modules that fit each other, their fibres, and how polarization reaches the mesh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.file.module_optics import ModuleFormat, ModuleOptics
from lumion_hw.circuits.planned import Strategy
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.errors import CircuitError, name_hint
from lumion_hw.interfaces.wiring import InputPath, OutputPath, Wiring
from lumion_hw.mesh.layout.topology import MeshTopology

_SAME_CARRIER_NM = 0.029
"""A coherent receiver finds a carrier within 3.6 GHz of its own (400ZR)."""


@dataclass(frozen=True)
class CircuitEnds:
    """Both ends of a circuit, found to fit.

    Attributes:
        request: What was asked for.
        entries: From the transmitter to the mesh, one per arm.
        exits: From the mesh to the receiver, each of the arm of the same place.
        sender: What the transmitting module is.
        receiver: What the receiving module is.
        format: Line format of both.
        strategy: How the polarization is dealt with.
        reason: Why so, in words.
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
        """Ports where each arm enters and leaves the mesh."""
        return tuple((entry.port, out.port) for entry, out in zip(self.entries, self.exits, strict=True))

    def can_match(self, mesh: MeshTopology) -> bool:
        """Return whether parity lets the arms have equal lengths (docs/mesh.md#routes); true with one arm."""
        return len({mesh.port_parity(*pair) for pair in self.pairs} - {None}) < 2


def circuit_ends(model: BenchModel, wiring: Wiring, mesh: MeshTopology, request: CircuitRequest) -> CircuitEnds:
    """Return the ends of a circuit.

    Raises:
        CircuitError: A module is not wired to the mesh, or the two cannot work together; the message names the field
            that differs.
    """
    if any(path.laser == request.source for path in wiring.inputs):
        raise CircuitError(
            f"circuit {request}: {request.source} is a laser, which carries no data",
            hint="Circuits begin at modules; lasers are light for calibration.",
        )
    entries, exits = wiring.inputs_of(request.source), wiring.outputs_of(request.target)
    for name, fibres in ((request.source, entries), (request.target, exits)):
        if not fibres:
            raise CircuitError(
                f"circuit {request}: {name} is not wired to the mesh",
                hint=name_hint(name, _wired_modules(wiring), "The wired modules are"),
            )
    sender, receiver = (_optics(model, request, name) for name in (request.source, request.target))
    used = _common_format(request, sender, receiver)
    _check_wavelengths(request, sender, receiver)
    _check_polarizations(request, sender, receiver)
    entries, exits, strategy, reason = _arms(mesh, request, sender, entries, exits)
    return CircuitEnds(request, entries, exits, sender, receiver, used, strategy, reason)


def _optics(model: BenchModel, request: CircuitRequest, name: str) -> ModuleOptics:
    optics = model.devices[name].optics
    if optics is None:
        raise CircuitError(
            f"circuit {request}: kind {model.devices[name].kind} of {name} does not say what its optical ends are",
            hint="Its model has to have 'optics' (lumion_hw.bench.ModuleOptics).",
        )
    return optics


def _differs(request: CircuitRequest, field: str, sends: str, receives: str, hint: str) -> CircuitError:
    return CircuitError(
        f"circuit {request} cannot work: {field} differs: {request.source} sends {sends}, {request.target} receives "
        f"{receives}",
        hint=hint,
    )


def _common_format(request: CircuitRequest, sender: ModuleOptics, receiver: ModuleOptics) -> ModuleFormat:
    """Return the receiver's side of the first line format that both speak."""
    for mine in sender.formats:
        for theirs in receiver.formats:
            if (mine.name, mine.rate_gbps) == (theirs.name, theirs.rate_gbps):
                return theirs
    names = {mine.name for mine in sender.formats} & {theirs.name for theirs in receiver.formats}
    told = [
        ", ".join(f"{each.rate_gbps:g} Gb/s" if names else each.name for each in side.formats)
        for side in (sender, receiver)
    ]
    field = "rate" if names else "line format"
    raise _differs(request, field, told[0], told[1], "Join modules of one kind of line.")


def _check_wavelengths(request: CircuitRequest, sender: ModuleOptics, receiver: ModuleOptics) -> None:
    shortest, longest = receiver.receives_nm
    if not shortest <= sender.emits_nm <= longest:
        receives = f"{shortest:g} to {longest:g} nm"
        raise _differs(request, "wavelength", f"{sender.emits_nm:.2f} nm", receives, "See 'devices' in the bench file.")
    # Its own laser is the local oscillator: a coherent receiver sees what it is tuned to, and nothing else.
    is_tuned = sender.polarizations == receiver.polarizations == 2
    if is_tuned and abs(sender.emits_nm - receiver.emits_nm) > _SAME_CARRIER_NM:
        sends, receives = (f"at {each.emits_nm:.3f} nm" for each in (sender, receiver))
        raise _differs(request, "wavelength", sends, receives, "Give both modules the same frequency_thz.")


def _check_polarizations(request: CircuitRequest, sender: ModuleOptics, receiver: ModuleOptics) -> None:
    words = {1: "one polarization", 2: "two polarizations"}
    if sender.polarizations != receiver.polarizations:
        told = (words[sender.polarizations], words[receiver.polarizations])
        raise _differs(request, "number of polarizations", *told, "Join modules of one kind of line.")
    asked = {"auto": sender.polarizations, "single": 1, "dual": 2}[request.polarization]
    if asked != sender.polarizations:
        raise CircuitError(
            f"circuit {request} cannot work: polarization={request.polarization!r} is asked for, and the signal of "
            f"{request.source} has {words[sender.polarizations]}",
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
    """Return the fibres of each arm, and the strategy that the wiring allows."""
    split = len(entries) == 2
    if (split or sender.polarizations == 2) and (len(entries), len(exits)) != (2, 2):
        side = "inputs" if len(entries) != 2 else "outputs"
        name = request.source if side == "inputs" else request.target
        why = (
            "its signal has two polarizations, of which one way through the mesh takes one"
            if sender.polarizations == 2
            else f"{request.source} is split, and both parts have to be brought together again"
        )
        raise CircuitError(
            f"circuit {request} cannot work: {name} has one of wiring.{side} and needs two, tributary x and y: {why}",
            hint="Put a polarization splitter-rotator or combiner there.",
        )
    if split:
        strategy: Strategy = "dual" if sender.polarizations == 2 else "diversity"
        return (*_paired(mesh, entries, exits), strategy, _REASONS[strategy])
    entry = entries[0]
    if entry.polarization is not None:
        reason = _REASONS["controller"].format(controller=entry.polarization)
        return (entry,), exits[:1], "controller", reason
    return (entry,), exits[:1], "none", _REASONS["none"]


_REASONS: dict[Strategy, str] = {
    "controller": "The mesh takes one polarization and the fibre turns it at will: controller {controller} before the "
    "mesh turns it back, searched by power at the exit and held in service.",
    "diversity": "A splitter-rotator sends both parts of the one polarization to the mesh, each as TE on a way of its "
    "own, and a combiner adds them up: whatever the fibre does, no controller is needed. The ways are equally long.",
    "none": "There is neither a controller nor a splitter at the input: the loss is that of a polarization that "
    "happens to be TE, as behind polarization-maintaining fibre. Of random ones a tenth lose more than 10 dB.",
    "dual": "The signal has two polarizations and one way takes one: a splitter-rotator gives each a way of its own. "
    "The receiver undoes any turn of both together, so no controller is needed (and power would be blind to it); "
    "what counts is that the ways are equally long and lossy.",
}


def _paired(
    mesh: MeshTopology, entries: tuple[InputPath, ...], exits: tuple[OutputPath, ...]
) -> tuple[tuple[InputPath, ...], tuple[OutputPath, ...]]:
    """Return inputs and outputs of two arms so paired that the longer way is short; x first."""
    first = tuple(sorted(entries, key=lambda entry: entry.tributary or ""))
    straight = tuple(sorted(exits, key=lambda out: out.tributary or ""))
    # Exchanging the tributaries is a turn like any other: the receiver undoes it.
    crossed = straight[::-1]

    def longer(outs: tuple[OutputPath, ...]) -> tuple[int, int]:
        hops = sorted(int(mesh.shortest_hops[a.port, b.port]) for a, b in zip(first, outs, strict=True))
        return hops[1], hops[0]

    return first, crossed if longer(crossed) < longer(straight) else straight


def pairings(ends: tuple[CircuitEnds, ...]) -> Iterator[tuple[CircuitEnds, ...]]:
    """Yield circuits as they are, then with the outputs of one of two arms exchanged."""
    yield ends
    for index, each in enumerate(ends):
        if len(each.exits) == 2:
            yield (*ends[:index], replace(each, exits=each.exits[::-1]), *ends[index + 1 :])


def _wired_modules(wiring: Wiring) -> list[str]:
    paths: tuple[InputPath | OutputPath, ...] = (*wiring.inputs, *wiring.outputs)
    return sorted({path.transponder for path in paths if path.transponder is not None})
