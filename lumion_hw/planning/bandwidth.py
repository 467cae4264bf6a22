"""Step time of a training job on a torus, a packet switch and a circuit fabric, before and after a replacement.

A step is the computation plus the part of the all-reduce that does not overlap with it. The all-reduce takes
A alpha + C b (docs/schedules.md), where b is the time to send one buffer over all links that it uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lumion_hw.errors import ConfigError
from lumion_hw.planning.bandwidth_file import BandwidthFileModel
from lumion_hw.planning.slices import needed_communication_share
from lumion_hw.planning.stated import assumptions_of, scaled
from lumion_hw.schedules import CostModel, ScheduleCost, cost_of, make_schedule

SWEPT_SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 40.0)
"""Multiples of the most important assumption for which the gain is computed."""
_FABRICS = ("torus", "packet_switch", "circuit")
_BYTES_PER_GBIT = 1e9 / 8


@dataclass(frozen=True)
class StepTime:
    """One training step on a fabric.

    Attributes:
        link_share: Fraction of an accelerator's links that the all-reduce uses; flows that share a link count less.
        all_reduce_s: Duration of the all-reduce.
        step_s: Duration of the step.
        communication_share: Fraction of the step spent in communication that does not overlap with computation.
    """

    link_share: float
    all_reduce_s: float
    step_s: float
    communication_share: float


@dataclass(frozen=True)
class FabricSteps:
    """Steps on one fabric before and after the replacement.

    Attributes:
        flows: Largest number of flows on one link after the replacement.
        hops: Most links on a path between the spare and a neighbour.
    """

    fabric: str
    before: StepTime
    after: StepTime
    flows: int = 1
    hops: int = 1


@dataclass(frozen=True)
class Influence:
    """Gain of the circuit fabric in step time if one number of the file changes.

    Attributes:
        halved: Gain with half the number; ``None`` if this is out of range.
        doubled: Gain with twice the number; ``None`` if this is out of range.
    """

    name: str
    halved: float | None
    doubled: float | None


@dataclass(frozen=True)
class SweepRow:
    """Gains for one value of an assumption.

    Attributes:
        communication_share: Fraction of the other fabric's step spent in communication.
    """

    value: float
    communication_share: float
    all_reduce_gain: float
    step_gain: float


@dataclass(frozen=True)
class PublishedGain:
    """A published gain beside the computed one.

    Attributes:
        quantity: ``step`` or ``all-reduce``.
        needed_share: Fraction of the other fabric's step that must be communication to reach a published step gain;
            ``None`` for an all-reduce, or if no fraction suffices.
    """

    quantity: str
    published: float
    source: str
    computed: float
    needed_share: float | None


@dataclass(frozen=True)
class BandwidthResult:
    """Result of a bandwidth file.

    Attributes:
        against: Fabric that the gains of the circuit fabric refer to, after the replacement.
        swept: Name of the assumption that changes the gain in step time most.
    """

    title: str
    against: str
    fabrics: tuple[FabricSteps, ...]
    published: tuple[PublishedGain, ...]
    influences: tuple[Influence, ...]
    swept: str
    sweep: tuple[SweepRow, ...]


def compare_bandwidth(model: BandwidthFileModel, scales: Sequence[float] = SWEPT_SCALES) -> BandwidthResult:
    """Compare the fabrics of a bandwidth file.

    Args:
        model: The checked file.
        scales: Multiples of the most important assumption for the sweep; those out of its range are left out.
    """
    fabrics = tuple(fabric_steps(model, name) for name in _FABRICS if getattr(model, name) is not None)
    influences = tuple(
        Influence(assumption.name, _step_gain(model, assumption.name, 0.5), _step_gain(model, assumption.name, 2.0))
        for assumption in assumptions_of(model)
        if assumption.value > 0.0 and assumption.given
    )
    step_gain = _gains(model).step_gain
    swept = max(influences, key=lambda influence: _strength(influence, step_gain)).name
    others = (scaled(model, swept, scale) for scale in scales)
    rows = tuple(_gains(other, swept) for other in others if other is not None and not any(other.checks()))
    return BandwidthResult(model.title, model.published.against, fabrics, _published(model), influences, swept, rows)


def fabric_steps(model: BandwidthFileModel, fabric: str) -> FabricSteps:
    """Return the steps on one fabric, before and after the replacement.

    Args:
        model: The checked file.
        fabric: ``torus``, ``packet_switch`` or ``circuit``.

    Raises:
        ConfigError: The file does not have this fabric.
    """
    ring = cost_of(make_schedule("ring", model.job.accelerators))
    if fabric == "circuit":
        cost = cost_of(make_schedule(model.circuit.schedule, model.job.accelerators))
        step = _step(model, 1.0, cost, model.circuit.switching_s.value)
        return FabricSteps(fabric, step, step)
    if fabric == "packet_switch" and model.packet_switch is not None:
        share = model.packet_switch.spare_share.value
        return FabricSteps(fabric, _step(model, 1.0, ring), _step(model, share, ring))
    if fabric == "torus" and model.torus is not None:
        job = model.torus.job()
        flows, hops = job.loads()
        if job.layout == "mesh":
            rounds = 2 * sum(length - 1 for length in job.box)
            ring = ScheduleCost("rings along all axes", rounds, 1, ring.buffers)
        before, after = (_step(model, job.share / load, ring) for load in (1, flows))
        return FabricSteps(fabric, before, after, flows, hops)
    raise ConfigError(f"the file has no fabric {fabric!r}", hint=f"Give one of {', '.join(_FABRICS)}.")


def _step(model: BandwidthFileModel, share: float, cost: ScheduleCost, switching_s: float = 0.0) -> StepTime:
    job, accelerator = model.job, model.accelerator
    ports_used = share * accelerator.ports
    if ports_used > 1.0 and accelerator.ports_gain is not None:
        # Between one port and all ports, each further port adds the same rate.
        added = (accelerator.ports_gain.value - 1.0) / (accelerator.ports - 1)
        ports_used = 1.0 + (ports_used - 1.0) * added
    rate = ports_used * accelerator.port_gbps.value * _BYTES_PER_GBIT
    fabric = CostModel(rate, accelerator.round_s.value, switching_s)
    # The last circuits of a step are the first of the next step.
    all_reduce_s = cost.time_s(fabric, job.gradient_gb.value * 1e9, first_is_ready=True)
    exposed_s = max(0.0, all_reduce_s - job.overlap.value * job.compute_s.value)
    step_s = job.compute_s.value + exposed_s
    return StepTime(share, all_reduce_s, step_s, exposed_s / step_s)


def _gains(model: BandwidthFileModel, name: str = "accelerator.port_gbps") -> SweepRow:
    other, circuit = (fabric_steps(model, fabric).after for fabric in (model.published.against, "circuit"))
    value = next(assumption.value for assumption in assumptions_of(model) if assumption.name == name)
    all_reduce_gain, step_gain = other.all_reduce_s / circuit.all_reduce_s, other.step_s / circuit.step_s
    return SweepRow(value, other.communication_share, all_reduce_gain, step_gain)


def _step_gain(model: BandwidthFileModel, name: str, scale: float) -> float | None:
    changed = scaled(model, name, scale)
    return None if changed is None or any(changed.checks()) else _gains(changed).step_gain


def _strength(influence: Influence, gain: float) -> float:
    others = [other for other in (influence.halved, influence.doubled) if other is not None]
    # Rounded: halving the rate and doubling the bytes are the same, and the first of them is to win.
    return round(max((abs(math.log(other / gain)) for other in others), default=0.0), 9)


def _published(model: BandwidthFileModel) -> tuple[PublishedGain, ...]:
    gains, found = _gains(model), list[PublishedGain]()
    for gain in model.published.gains:
        computed, needed = gains.all_reduce_gain, None
        if gain.of == "step":
            computed, needed = gains.step_gain, needed_communication_share(gain.value, gains.all_reduce_gain)
        found.append(PublishedGain(gain.of, gain.value, gain.source, computed, needed))
    return tuple(found)
