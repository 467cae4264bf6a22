"""Faults of heaters, PUCs, monitors, sources and channels, with messages and data.

Messages name the element, the observation, the expected value, what still works, and what to do (docs/calibration.md,
12).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.miswiring import EXCHANGED, SHARED, Miswiring
from calibration.measure.heater_fringe import HeaterFit
from calibration.model.arrays import Real
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import Defect

UNCERTAIN_LAW = "uncertain law"
"""Kind of a defect: the phase against current of a heater is uncertain; more readings may help."""
STUCK_PUC = "stuck PUC"
DEAD_MONITOR, FAINT_MONITOR = "dead monitor", "faint monitor"
UNSEEN_PUC = "unseen PUC"
LEFT_OUT = "not in the calibrated part of the mesh"
"""Note about a PUC that was left out of a calibration on request."""

_ARMS = ("upper", "lower")
_KIND_IN_LOW_LIGHT = {DEAD_MONITOR: FAINT_MONITOR, STUCK_PUC: UNSEEN_PUC, "dead heater": "unseen heater"}
_SATURATED_SHARE = 0.01
# Largest leak to the wrong output at which a stuck PUC is still used as bar or cross: 20 dB extinction.
_USABLE_LEAK = 0.01
# Four standard deviations of published couplers stay below this leak (Sánchez-Jácome 2025).
_BALANCED_LEAK = 0.015
_FRINGE_RAD = 2.0 * np.pi
_OTHER_ARM = "the other arm still sets all couplings, but not a free common phase"

DEFECT_TEXTS: dict[str, str] = {
    "dead heater": "{heater}: no effect; " + _OTHER_ARM + ". Check the wire and the contact of this channel",
    "dead phase shifter": (
        "{heater}: no effect; its phase cannot be set. Check the wire and the contact of this channel"
    ),
    UNCERTAIN_LAW: "{heater}: several heater laws fit its sweeps; the best one was used",
    STUCK_PUC: (
        "PUC {puc} ({channels}): no heater has any effect on the light{coupling}; {use}. Check the wires of its "
        "channels"
    ),
    UNSEEN_PUC: (
        "PUC {puc} ({channels}) {reason}, so neither the PUC nor its heaters could be measured. Routes avoid "
        "it. {remedy}"
    ),
    FAINT_MONITOR: "monitor at port {number}: its signal is not above the noise; it is not used",
    "unseen in low light": "PUC {number}: the effect of its heaters is not above the noise; routes avoid it",
    "unseen heater": "{heater}: its effect is not above the noise; it stays off",
    "little light": (
        ". There is too little light: the brightest reading of a typical monitor is {contrast:.0f} times the noise, "
        "but at least {least:.0f} times are needed to recognize broken elements. Increase the light, then calibrate "
        "again"
    ),
    "died in the run": (
        "{heater}: no effect; it stopped working at random setting {first} of {settings} and followed its law "
        "before that; " + _OTHER_ARM + ". Check the wire and the contact of this channel"
    ),
    "silent": (
        "{heater}: no effect in {settings} random settings, although its sweep seemed to show one; "
        + _OTHER_ARM
        + ". Check the wire and the contact of this channel"
    ),
    "weak heater": (
        "{heater}: it reaches a phase of {reach:.2f}π at {max_ma:g} mA, less than the 2π of a full fringe; this arm "
        "alone sets couplings from {least:.3f} to {largest:.3f}, and {rest}. Check its resistance, or allow more "
        "current"
    ),
    "couplers off balance": (
        "PUC {puc}: its couplers are off balance; it sets couplings from {least:.3f} to {largest:.3f} only (usual: "
        "0.015 to 0.985), with an extinction of {bar:.0f} dB in bar and {cross:.0f} dB in cross. Couplings inside "
        "this range are accurate. Prefer its better state in routes"
    ),
    EXCHANGED: (
        "channels {channel} and {other} appear to be exchanged: channel {channel} is mapped to {name} but heats "
        "{other_name}. A calibration with this map is not certified. Exchange the two channels in the channel map of "
        "the bench file or swap their wires, then calibrate again"
    ),
    SHARED: (
        "channel {channel} heats two heaters, {name} and {other_name}: they share its current, and channel {other} "
        "has no effect. A calibration with this wiring is not certified. Check the two wires and the chip for a short, "
        "then calibrate again"
    ),
    "saturated monitor": (
        "monitor at port {port}: saturated in {share:.0f} % of the settings; these readings are used as lower bounds, "
        "all others normally. Choose a less sensitive range, or reduce the light"
    ),
    "died monitor": (
        "monitor at port {port}: dark from random setting {first} of {settings} on; its readings before that are "
        "used. Circuits can use the port, but its light is not monitored. Check the photodiode and its amplifier"
    ),
    "dead port": (
        "port {port}: no light enters, and its monitor shows no light leaving; it is not used. PUCs next to it are "
        "measured from other ports. Check the fibre and its facet"
    ),
}  # fmt: skip


def _defect(
    kind: str, element: Literal["puc", "heater", "port", "monitor"], number: int, text: str = "", **values: object
) -> Defect:
    """Return a defect with the message of its kind, or with another one of :data:`DEFECT_TEXTS`."""
    return Defect(kind, element, number, DEFECT_TEXTS[text or kind].format(**values))


def heater_name(heater: int, channels: Sequence[int]) -> str:
    """Return the name of a heater, such as ``PUC 41 lower heater (channel 83)``."""
    return f"PUC {heater // 2} {_ARMS[heater % 2]} heater (channel {channels[heater]})"


def heater_defects(
    heaters: Sequence[HeaterFit], channels: Sequence[int], mesh: MeshTopology, driven: NDArray[np.bool_]
) -> tuple[Defect, ...]:
    """Return defects for stuck PUCs, dead heaters, and heaters whose law (phase against current) is uncertain.

    ``heaters`` are the sweep results by heater (2·PUC + arm); ``driven`` marks the swept heaters.
    """
    defects = []
    for puc in range(mesh.n_pucs):
        arms = [arm for arm in (0, 1) if driven[2 * puc + arm]]
        fits = [heaters[2 * puc + arm] for arm in arms]
        if arms and mesh.interferes[puc] and all(fit.law is None for fit in fits):
            defects.append(stuck_puc_defect(puc, channels))
            continue
        for arm, fit in zip(arms, fits, strict=True):
            kind = "dead heater" if fit.law is None else UNCERTAIN_LAW
            if fit.law is None or not np.isfinite(fit.turn_sigma_rad):
                has_other_arm = len(arms) == 2 or fit.law is not None
                text, heater = kind if has_other_arm else "dead phase shifter", 2 * puc + arm
                defects.append(_defect(kind, "heater", heater, text, heater=heater_name(heater, channels)))
    return tuple(defects)


def _channels_text(puc: int, channels: Sequence[int]) -> str:
    own = [channel for channel in channels[2 * puc : 2 * puc + 2] if channel != NO_CHANNEL]
    return f"channel{'' if len(own) == 1 else 's'} {' and '.join(map(str, own)) or 'none'}"


def stuck_puc_defect(
    puc: int, channels: Sequence[int], coupling: float | None = None, coupling_sigma: float | None = None
) -> Defect:
    """Return the defect of a stuck PUC. A PUC that is stuck at bar or cross can still be used in this state."""
    states: tuple[State, ...] = ()
    at = ""
    if coupling is not None:
        states = ("bar",) if coupling < _USABLE_LEAK else ("cross",) if coupling > 1.0 - _USABLE_LEAK else ()
        at = f"; it is stuck at a coupling of {coupling:.4f} ± {coupling_sigma or 0.0:.4f}"
    use = f"it can be used as {states[0]} only; other routes must avoid it" if states else "routes must avoid it"
    defect = _defect(STUCK_PUC, "puc", puc, puc=puc, channels=_channels_text(puc, channels), coupling=at, use=use)
    return replace(defect, usable_states=states, coupling=coupling, coupling_sigma=coupling_sigma)


def mark_unseen_pucs(
    defects: Sequence[Defect],
    unseen: Sequence[int],
    channels: Sequence[int],
    mesh: MeshTopology,
    sources: Sequence[int],
    monitors: Sequence[int],
) -> tuple[Defect, ...]:
    """Return the defects, with PUCs whose light reaches no monitor (``unseen``) reported as unseen.

    ``sources`` and ``monitors`` are ports.
    """
    # Without light the state of a PUC is unknown; "stuck" would blame an element that may work.
    visible = [defect for defect in defects if _puc_of(defect) not in unseen]
    for puc in unseen:
        hints = visibility_hints(mesh, puc, sources, monitors)
        visible.append(_defect(UNSEEN_PUC, "puc", puc, puc=puc, channels=_channels_text(puc, channels), **hints))
    return tuple(visible)


def visibility_hints(mesh: MeshTopology, puc: int, sources: Sequence[int], monitors: Sequence[int]) -> dict[str, str]:
    """Return why no monitor receives light of a PUC, and which additional input or output would help."""
    inputs = [port for port in mesh.fibre_ports if port not in sources and _passes(mesh, [port], puc, monitors)]
    if inputs:
        return {"reason": "gets no light from your inputs", "remedy": f"Add an input at port {_join_ports(inputs)}"}
    outputs = [port for port in mesh.fibre_ports if port not in monitors and _passes(mesh, sources, puc, [port])]
    if outputs:
        reason = "sends no light to your monitors"
        return {"reason": reason, "remedy": f"Add a monitor or meter at port {_join_ports(outputs)}"}
    reason = "is on no path from your inputs to your monitors"
    return {"reason": reason, "remedy": "Add inputs and monitors at other ports"}


def describe_unseen_puc(mesh: MeshTopology, puc: int, sources: Sequence[int], monitors: Sequence[int]) -> str:
    """Return why no monitor receives light of a PUC, and what to add, as one sentence without a full stop."""
    advice = visibility_hints(mesh, puc, sources, monitors)
    return f"PUC {puc} {advice['reason']}: {advice['remedy'][0].lower()}{advice['remedy'][1:]}"


def _passes(mesh: MeshTopology, sources: Sequence[int], puc: int, monitors: Sequence[int]) -> bool:
    # Light is reversible: light from a port leaves a PUC where light entering there would reach the port.
    is_reached = mesh.hops_to_port[:, 4 * puc : 4 * puc + 4].reshape(-1, 2, 2) < 8 * mesh.n_pucs
    ends = [np.asarray(is_reached[list(ports)].any(axis=(0, 2))) for ports in (sources, monitors)]
    return bool((ends[0][::-1] & ends[1]).any())


def _join_ports(ports: Sequence[int]) -> str:
    *first_ports, last = map(str, ports)
    return f"{', '.join(first_ports)} or {last}" if first_ports else last


def _puc_of(defect: Defect) -> int | None:
    return {"puc": defect.number, "heater": defect.number // 2}.get(defect.element)


def relabel_in_low_light(
    defects: Sequence[Defect], contrast: float, min_contrast: float, channels: Sequence[int]
) -> tuple[Defect, ...]:
    """Return the defects, in low light with dark elements reported as faint or unseen instead of dead.

    Light is low if the contrast (brightest reading of a typical monitor over the noise) is below ``min_contrast``.
    """
    advice = DEFECT_TEXTS["little light"].format(contrast=contrast, least=min_contrast)

    def relabelled(defect: Defect) -> Defect:
        if defect.kind not in _KIND_IN_LOW_LIGHT:
            return defect
        kind, number = _KIND_IN_LOW_LIGHT[defect.kind], defect.number
        text = "unseen in low light" if kind == UNSEEN_PUC else kind
        heater = heater_name(number, channels) if defect.element == "heater" else ""
        description = DEFECT_TEXTS[text].format(number=number, heater=heater)
        return Defect(kind, defect.element, number, description + advice)

    return tuple(map(relabelled, defects))


def heater_breakdown_defect(heater: int, channels: Sequence[int], first: int, settings: int) -> Defect:
    """Return the defect of a heater that failed at a random setting; setting 0 means that it never worked."""
    text, name = "died in the run" if first else "silent", heater_name(heater, channels)
    return _defect("dead heater", "heater", heater, text, heater=name, first=first, settings=settings)


def miswiring_defects(wiring: Miswiring, channels: Sequence[int]) -> tuple[Defect, ...]:
    """Return the defects of a wrong wiring: one for each exchanged channel, or one for a shared channel."""
    exchanged, defects = [(wiring.first, wiring.second), (wiring.second, wiring.first)], []
    for heater, other in exchanged[:1] if wiring.kind == SHARED else exchanged:
        name, other_name = heater_name(heater, channels), heater_name(other, channels)
        values: dict[str, Any] = {"channel": channels[heater], "other": channels[other]}
        defects.append(_defect(wiring.kind, "heater", heater, name=name, other_name=other_name, **values))
    return tuple(defects)


def saturation_defects(observations: Observations) -> tuple[Defect, ...]:
    """Return a defect for every monitor that saturates."""
    share = observations.saturated.mean(axis=0)
    return tuple(
        _defect("saturated monitor", "monitor", port, port=port, share=100 * part)
        for port, part in zip(observations.monitors, share.tolist(), strict=True)
        if part > _SATURATED_SHARE
    )


def monitor_breakdown_defect(port: int, first: int, settings: int) -> Defect:
    """Return the defect of a monitor that went dark at one of the random settings."""
    return _defect(DEAD_MONITOR, "monitor", port, "died monitor", port=port, first=first, settings=settings)


def merge_dead_ports(defects: Sequence[Defect]) -> tuple[Defect, ...]:
    """Return the defects, with one dead port instead of a dead source and a dead monitor at this port."""
    sources = {defect.number for defect in defects if defect.kind == "dead source"}
    # One broken facet is more likely than a dead diode and a dead source at the same port.
    dead_ports = {defect.number for defect in defects if defect.kind == DEAD_MONITOR} & sources
    other_defects = [
        defect for defect in defects if not (defect.number in dead_ports and defect.element in ("source", "monitor"))
    ]
    return (*other_defects, *(_defect("dead port", "port", port, port=port) for port in sorted(dead_ports)))


def without_duplicates(defects: Sequence[Defect]) -> tuple[Defect, ...]:
    """Return the defects without duplicates. A stuck PUC replaces its two dead heaters."""
    stuck = {defect.number for defect in defects if defect.kind == STUCK_PUC}
    unique: dict[tuple[str, str, int], Defect] = {}
    for defect in defects:
        if not (defect.kind == "dead heater" and defect.number // 2 in stuck):
            unique.setdefault((defect.kind, defect.element, defect.number), defect)
    return tuple(unique.values())


def defects_from_fit(
    parameters: MeshParameters,
    covariance: Real,
    phases: slice,
    channels: Sequence[int],
    max_ma: float,
    mesh: MeshTopology,
) -> tuple[Defect, ...]:
    """Return the defects that follow from a fit: stuck PUCs, weak heaters, unbalanced couplers.

    ``phases`` is the slice of the passive phases in the covariance, ``max_ma`` the largest allowed current.
    """
    sigma = np.sqrt(np.maximum(np.diag(covariance)[phases], 0.0))
    defects: list[Defect] = []
    for puc, alpha in enumerate(parameters.passive_phase_rad.tolist()):
        smallest = float(np.sin(parameters.coupler_difference_rad[puc]) ** 2)
        largest = float(np.cos(2.0 * parameters.coupler_common_rad[puc]) ** 2)
        laws = parameters.heater_law[2 * puc : 2 * puc + 2]
        has_channel = any(channel != NO_CHANNEL for channel in channels[2 * puc : 2 * puc + 2])
        if not (mesh.interferes[puc] and has_channel):
            continue
        if smallest > _BALANCED_LEAK or largest < 1.0 - _BALANCED_LEAK:
            bar, cross = (-10.0 * np.log10(max(leak, 1e-9) / (1.0 - leak)) for leak in (smallest, 1.0 - largest))
            values: dict[str, Any] = {"least": smallest, "largest": largest, "bar": bar, "cross": cross}
            defects.append(_defect("couplers off balance", "puc", puc, puc=puc, **values))
        if not laws.any():
            coupling = smallest + (largest - smallest) * np.cos(alpha / 2.0) ** 2
            slope = 0.5 * (largest - smallest) * abs(np.sin(alpha))
            # k = least + (largest - least)·cos²(α/2). At an extreme the slope is 0, and the error of second order.
            off = float(np.hypot(slope * sigma[puc], 0.25 * (largest - smallest) * sigma[puc] ** 2))
            defects.append(stuck_puc_defect(puc, channels, float(coupling), off))
            continue
        defects += _weak_heaters(puc, laws, alpha, (smallest, largest), channels, max_ma)
    return tuple(defects)


def _weak_heaters(
    puc: int, laws: Real, alpha: float, interval: tuple[float, float], channels: Sequence[int], max_ma: float
) -> list[Defect]:
    square, (smallest, largest) = np.linspace(0.0, max_ma**2, 200), interval
    phases = [square * (law[0] + square * (law[1] + square * law[2])) for law in laws]
    reachable_rad = [float(phase.max()) for phase in phases]
    defects = []
    for arm, turned in enumerate((alpha + phases[0], alpha - phases[1])):
        if not laws[arm].any() or reachable_rad[arm] >= _FRINGE_RAD:
            continue
        couplings = smallest + (largest - smallest) * np.cos(turned / 2.0) ** 2
        values: dict[str, Any] = {"reach": reachable_rad[arm] / np.pi, "max_ma": max_ma}
        values |= {"least": float(couplings.min()), "largest": float(couplings.max())}
        is_covered = reachable_rad[1 - arm] >= _FRINGE_RAD
        rest = "the other arm sets all couplings" if is_covered else "couplings outside are refused"
        heater, name = 2 * puc + arm, heater_name(2 * puc + arm, channels)
        defects.append(_defect("weak heater", "heater", heater, heater=name, rest=rest, **values))
    return defects
