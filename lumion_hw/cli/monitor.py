"""``lumion monitor``: show the readings of a bench as a live table."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.numbers import MAX_COUNT, PERIOD
from lumion_hw.cli.common.opening import bench_options, channels_option, devices_with, open_bench
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, table

if TYPE_CHECKING:
    from lumion_hw.acquisition.columns import Column, Value

_TEXT = {
    "OVER_RANGE": "over range",
    "UNDER_RANGE": "under range",
    "DARK": "dark",
    "FAILED": "-",
    "NO_SIGNAL": "no signal",
    "INCONSISTENT": "inconsistent",
}
_CLEAR_SCREEN = "\x1b[H\x1b[J"


@click.command()
@click.argument("bench_file", metavar="BENCH")
@bench_options
@channels_option("show")
@click.option(
    "--period", "period_s", default=1.0, show_default=True, type=PERIOD, help="Time between readings, in seconds."
)
@click.option("--count", type=click.IntRange(1, MAX_COUNT), help="Number of readings to show.  [default: until Ctrl-C]")
@json_option
def monitor(
    bench_file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    channels: tuple[str, ...],
    period_s: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Show readings of BENCH as a live table, until Ctrl-C.

    If a device stops answering, its last value stays on the screen, marked STALE with its age. With --json the command
    reads once and prints one document.
    """
    from lumion_hw.acquisition.columns import Reader
    from lumion_hw.acquisition.latest import Latest

    with open_bench(bench_file, emulate, seed, endpoints, devices_with(bench_file, channels)) as bench:
        latest = Latest(Reader(bench, channels or ("*",)), bench.clock)
        n_printed = 0
        while True:
            latest.update()
            if as_json:
                echo_json({"readings": [_document(entry.column, entry.value) for entry in latest.entries()]})
                return
            rows = [
                (entry.column.name, _value_text(entry.value), entry.column.unit, _stale_text(entry.stale_s))
                for entry in latest.entries()
            ]
            clear = _CLEAR_SCREEN if sys.stdout.isatty() else ""
            failures = "".join(f"\n{device}: {error}" for device, error in latest.failures.items())
            click.echo(clear, nl=False)
            echo_text(f"{table(('channel', 'value', 'unit', ''), rows)}{failures}")
            n_printed += 1
            if count is not None and n_printed >= count:
                return
            bench.clock.sleep(period_s)


def _value_text(value: Value) -> str:
    return _TEXT.get(value.state.name) or f"{value.number:.6g}"


def _stale_text(stale_s: float | None) -> str:
    return "" if stale_s is None else f"STALE {stale_s:.0f} s"


def _document(column: Column, value: Value) -> dict[str, object]:
    number = None if math.isnan(value.number) else value.number
    return {"channel": column.name, "unit": column.unit, "state": value.state.name, "value": number}
