"""``lumion plan bandwidth`` and ``lumion plan power``: networks compared under the assumptions of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic import BaseModel

    from lumion_hw.planning import BandwidthResult, PowerFileModel, PowerRow

_Comparison = tuple["BaseModel", dict[str, Any], "Callable[[], None]"]
"""Model of a file, the result as a JSON document, and the function that prints its tables."""


def _command_of(compare: Callable[[str], _Comparison]) -> click.Command:
    """Return a command that prints a comparison, and the numbers of its file."""

    @click.command(compare.__name__, help=compare.__doc__)
    @click.argument("file", type=click.Path(dir_okay=False))
    @json_option
    def command(file: str, as_json: bool) -> None:
        _print_result(*compare(file), as_json)

    return command


@_command_of
def bandwidth(file: str) -> _Comparison:
    """Compare the training step of a job on three fabrics, before and after a failed accelerator was replaced.

    FILE states the job, the fabrics and the published gains. Example: examples/replaced_accelerator.yaml.
    """
    from lumion_hw.planning import compare_bandwidth, load_bandwidth_file

    model = load_bandwidth_file(file)
    result = compare_bandwidth(model)
    return model, {"result": result}, lambda: _print_bandwidth(result)


def _print_result(model: BaseModel, document: dict[str, Any], print_tables: Callable[[], None], as_json: bool) -> None:
    """Print a result, and the numbers of the file that it rests on."""
    from lumion_hw.planning import assumptions_of

    assumptions = assumptions_of(model)
    if as_json:
        echo_json(document | {"assumptions": assumptions})
        return
    print_tables()
    echo_table(
        "Numbers of the file",
        ("name", "value", "source"),
        [(assumption.name, f"{assumption.value:g}", assumption.source) for assumption in assumptions],
    )


def _print_bandwidth(result: BandwidthResult) -> None:
    _print_steps(result)
    _print_gains(result)


def _print_steps(result: BandwidthResult) -> None:
    circuits = result.fabrics[-1]
    echo_table(
        f"{result.title}: one training step",
        (
            *("fabric", "replaced", "links used", "flows per link", "hops"),
            *("all-reduce ms", "step ms", "communication", "gain"),
        ),
        [
            (
                steps.fabric.replace("_", " "),
                replaced,
                f"{step.link_share:.1%}",
                *((steps.flows, steps.hops) if replaced == "after" else (1, 1)),
                f"{1e3 * step.all_reduce_s:.4g}",
                f"{1e3 * step.step_s:.4g}",
                f"{step.communication_share:.1%}",
                round(step.step_s / circuit.step_s, 2),
            )
            for steps in result.fabrics
            for replaced, step, circuit in (
                ("before", steps.before, circuits.before),
                ("after", steps.after, circuits.after),
            )
        ],
    )
    echo_text(
        "links used: fraction of an accelerator's links; communication: fraction of the step; gain: step over the step "
        "on circuits.\n"
    )


def _print_gains(result: BandwidthResult) -> None:
    against = result.against.replace("_", " ")
    echo_table(
        f"Gain of circuits over {against} after the replacement",
        ("gain in", "published", "computed", "communication it needs", "source"),
        [
            (
                gain.quantity,
                gain.published,
                round(gain.computed, 2),
                None if gain.quantity != "step" else _share(gain.needed_share),
                gain.source,
            )
            for gain in result.published
        ],
    )
    echo_table(
        "Gain in step time if one assumption changes",
        ("assumption", "halved", "doubled"),
        [
            (
                influence.name,
                *(None if gain is None else round(gain, 2) for gain in (influence.halved, influence.doubled)),
            )
            for influence in result.influences
        ],
    )
    echo_table(
        f"Gain over the assumption that matters most, {result.swept}",
        (result.swept, f"communication on {against}", "all-reduce gain", "step gain"),
        [
            (
                f"{row.value:.4g}",
                f"{row.communication_share:.1%}",
                round(row.all_reduce_gain, 2),
                round(row.step_gain, 2),
            )
            for row in result.sweep
        ],
    )


def _share(share: float | None) -> str:
    return "none suffices" if share is None else f"{share:.1%}"


@_command_of
def power(file: str) -> _Comparison:
    """Compare the power of networks of packet switches and of circuit switches.

    FILE states the switches, the transceivers and the published ratio. Example: examples/rail_power.yaml.
    """
    from lumion_hw.planning import compare_power, load_power_file

    model = load_power_file(file)
    rows = compare_power(model)
    return model, {"published": model.published.ratio.value, "rows": rows}, lambda: _print_power(model, rows)


def _print_power(model: PowerFileModel, rows: Sequence[PowerRow]) -> None:
    echo_table(
        f"{model.title}: power per accelerator port, published ratio {model.published.ratio.value:g}",
        (
            *("accelerators", "packet tiers", "circuit tiers", "packet W", "circuit W", "ratio"),
            *("ratio with host transceivers", "largest possible"),
        ),
        [
            (
                *(row.accelerators, row.packet_tiers, row.circuit_tiers, round(row.packet_w, 1)),
                *(round(row.circuit_w, 2), round(row.ratio, 1), round(row.ratio_with_hosts, 1)),
                round(row.free_switch_ratio, 1),
            )
            for row in rows
        ],
    )
    echo_text(
        "ratio: packet over circuit network without the transceivers at the accelerators; largest possible: with these "
        "transceivers, if circuit switches took no power.\n"
    )
