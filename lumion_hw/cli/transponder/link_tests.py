"""``lumion transponder loopback`` and ``prbs``: test the links of a module without other instruments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.modules import NamedModule, cmis_module, lane_text, lanes_option, module_command
from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note
from lumion_hw.errors import LumionError

if TYPE_CHECKING:
    from lumion_hw.clock import Clock
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.standards.cmis.codes import Pattern

LOOPBACK_NAMES = {
    "media-near": "media_output",
    "media-far": "media_input",
    "host-near": "host_input",
    "host-far": "host_output",
}
"""CMIS name of each loopback: near returns the signal of the own host, far that of the far end."""
_PATTERNS = (*(f"PRBS{order}{levels}" for order in (31, 23, 15, 13, 9, 7) for levels in ("Q", "")), "SSPRQ", "USER")
_ROW_S = 1.0
_ERROR_FREE_LIMIT = 3.0  # -ln(0.05): errors expected at most after none was counted, with 95 % confidence


# -- loopback


@click.command(short_help="Close or open a loopback.")
@module_command
@click.argument("kind", type=click.Choice([*LOOPBACK_NAMES, "off"]))
@lanes_option("Lanes to change, 1 to 32, such as 1,3 or 5-8.  [default: all]")
@json_option
def loopback(
    target: NamedModule,
    kind: str,
    lanes: tuple[int, ...] | None,
    as_json: bool,
) -> None:
    """Close a loopback of DEVICE, or open all of them with `off`. Transmitters do not change.

    A near loopback returns the signal of this host to this host, at the host side or at the media side of the module.
    A far loopback returns the signal of the far end to the far end. In the words of CMIS, media-near is the media side
    output loopback, media-far media side input, host-near host side input, and host-far host side output.
    """
    device = target.device
    with target.open() as (opened, _):
        module = cmis_module(opened, "a loopback")
        if kind == "off":
            for name, closed in module.closed_loopbacks().items():
                if set(closed) & set(closed if lanes is None else lanes):
                    module.set_loopback(name, False, lanes)
        else:
            module.set_loopback(LOOPBACK_NAMES[kind], True, lanes)
        states = {_option_name(name): closed for name, closed in module.closed_loopbacks().items()}
    if as_json:
        echo_json({"device": device, "closed": states})
    else:
        rows = [(name, lane_text(closed)) for name, closed in states.items()]
        echo_table(f"Loopbacks of {device}", ("loopback", "closed on lanes"), rows)


def _option_name(loopback_name: str) -> str:
    return next(option for option, name in LOOPBACK_NAMES.items() if name == loopback_name)


# -- test patterns


@dataclass(frozen=True)
class PatternRow:
    """Result of a pattern checker on one lane in one interval.

    Attributes:
        time_s: End of the interval, in seconds since the start of the test.
        lane: Lane.
        has_pattern: Whether the checker found the pattern during the whole interval.
        bits: Number of checked bits; ``None`` if the module does not count bits.
        errors: Number of wrong bits; ``None`` if the module does not count bits.
        ber: Bit error ratio; ``None`` without a result.
    """

    time_s: float
    lane: int
    has_pattern: bool
    bits: int | None
    errors: int | None
    ber: float | None


class PatternCheck:
    """Reads running pattern checkers in intervals.

    Args:
        module: Open module; its checkers run.
        clock: Clock of the module.
        side: ``host`` or ``media``.
        lanes: Lanes to read.
    """

    def __init__(self, module: CmisTransponder, clock: Clock, side: str, lanes: tuple[int, ...]) -> None:
        from lumion_hw.errors import NotSupportedError

        self._module, self._clock, self._side, self._lanes = module, clock, side, lanes
        self._counts = None
        with contextlib.suppress(NotSupportedError):  # such modules report only the bit error ratio
            self._counts = module.pattern_counts(side, lanes)
        module.flags()  # from now on, flags are of this test
        self._began_s = self._last_s = clock.now()

    def read(self) -> list[PatternRow]:
        """Read all lanes.

        Raises:
            LinkError: The module was removed.
            DeviceError: A checker is off, for example because the module was reset.
        """
        counts = None if self._counts is None else self._module.pattern_counts(self._side, self._lanes)
        name = f"checker_lol_{self._side}"
        recent = [flag for flag in self._module.flags() if flag.name == name and flag.last_seen_s > self._last_s]
        lost = {flag.lane for flag in recent}
        self._last_s = self._clock.now()
        elapsed_s = round(self._last_s - self._began_s, 3)
        rows = []
        for lane in self._lanes:
            bits, errors, ber = None, None, None
            if counts is None or self._counts is None:
                reading = self._module.pattern_ber(self._side, lane)
                ber = None if reading is None or lane in lost else reading.value
            else:
                new, old = counts[lane], self._counts[lane]
                # The module may restart its counters at any time; a smaller number is a new count.
                restarted = new.bits < old.bits
                bits = new.bits - (0 if restarted else old.bits)
                errors = new.errors - (0 if restarted else old.errors)
                ber = errors / bits if bits else None
            rows.append(PatternRow(elapsed_s, lane, lane not in lost and bits != 0, bits, errors, ber))
        self._counts = counts
        return rows


@contextmanager
def running_pattern(
    module: CmisTransponder, device: str, ends: Sequence[str], pattern: Pattern, lanes: tuple[int, ...]
) -> Iterator[None]:
    """Run generators and checkers in a ``with`` block. They are off afterwards, also after an error or Ctrl-C.

    Raises ``NotSupportedError`` before anything is switched if one of the ``ends`` does not have the pattern.
    """
    from lumion_hw.errors import NotSupportedError

    for end in ends:
        patterns = module.patterns(end)
        if pattern not in patterns:
            offers = ", ".join(item.name for item in patterns) or "no pattern"
            text = f"the {end.replace('_', ' ')} of {device} does not support {pattern.name}"
            raise NotSupportedError(text, hint=f"It advertises {offers}.", device=device)
    with contextlib.ExitStack() as stack:
        for end in ends:
            stack.enter_context(_running_end(module, device, end, pattern, lanes))
        yield


@contextmanager
def _running_end(
    module: CmisTransponder, device: str, end: str, pattern: Pattern, lanes: tuple[int, ...]
) -> Iterator[None]:
    try:
        module.start_pattern(end, pattern, lanes)
        yield
    except BaseException:
        try:
            module.stop_pattern(end, lanes)
        except LumionError as error:  # the first error is the more important one
            note(f"{device}: the {end.replace('_', ' ')} could not be switched off: {error}")
        raise
    module.stop_pattern(end, lanes)


@click.command(short_help="Send and check test patterns.")
@module_command
@click.option("--side", required=True, type=click.Choice(["host", "media"]), help="Side of the module.")
@click.option(
    "--pattern",
    "pattern_name",
    required=True,
    type=click.Choice(_PATTERNS),
    help="Test pattern; Q means PAM4.",
)
@click.option("--generate", is_flag=True, help="Send the pattern.")
@click.option("--check", is_flag=True, help="Check the received pattern and count errors.")
@click.option("--seconds", "duration_s", type=Number("s", 1.0, 1e6), help="Duration.  [default: until Ctrl-C]")
@lanes_option("Lanes to test, 1 to 32, such as 1,3 or 5-8.  [default: all lanes of the data paths]")
@json_option
@click.pass_context
def prbs(
    context: click.Context,
    target: NamedModule,
    side: str,
    pattern_name: str,
    generate: bool,
    check: bool,
    duration_s: float | None,
    lanes: tuple[int, ...] | None,
    as_json: bool,
) -> None:
    """Send or check a test pattern at one side of DEVICE; with --check print one line per lane and second.

    Generator and checker are off afterwards, also after Ctrl-C. The transmitter does not change: switch it on first
    with `enable`. The exit code is 1 if a lane had no pattern in any interval.
    """
    from lumion_hw.standards.cmis.codes import Pattern

    device = target.device
    ends = [f"{side}_{end}" for end, wanted in (("generator", generate), ("checker", check)) if wanted]
    if not ends:
        raise click.UsageError("Give --generate, --check or both.")
    rows: list[PatternRow] = []
    failure: KeyboardInterrupt | LumionError | None = None
    with target.open() as (opened, clock):
        module = cmis_module(opened, "a test pattern")
        lanes = lanes or _lanes_of(module, side)
        try:
            with running_pattern(module, device, ends, Pattern[pattern_name], lanes):
                note(f"{device}: {pattern_name} on {side} lanes {lane_text(lanes)}; Ctrl-C ends the test")
                checker = PatternCheck(module, clock, side, lanes) if check else None
                _watch(module, clock, checker, duration_s, _collector(rows, as_json))
        except (KeyboardInterrupt, LumionError) as error:
            failure = error
    if isinstance(failure, LumionError) and (as_json or not rows):
        raise failure
    totals = _totals(rows, lanes)
    if as_json:
        test = {"device": device, "side": side, "pattern": pattern_name, "lanes": lanes, "interrupted": bool(failure)}
        echo_json(test | {"rows": [asdict(row) for row in rows], "totals": totals})
    else:
        _print_totals(device, pattern_name, totals)
    # Without a duration, Ctrl-C is the normal end.
    if failure is not None and not (isinstance(failure, KeyboardInterrupt) and duration_s is None):
        note(f"{device}: the test ended early; the table holds the results so far")
        raise failure
    silent = tuple(total["lane"] for total in totals if not total["has_pattern"])
    if silent:
        note(f"{device}: no {pattern_name}, or an interrupted one, at the {side} checker of lanes {lane_text(silent)}")
        context.exit(LumionError.exit_code)


def _lanes_of(module: CmisTransponder, side: str) -> tuple[int, ...]:
    """Return the lanes of the data paths in use, or without them all lanes of the advertised applications."""
    paths = () if module.is_flat else module.data_paths()
    lanes = {lane for path in paths for lane in (path.host_lanes if side == "host" else path.media_lanes)}
    for item in () if lanes else module.capabilities().applications:
        starts, width = (
            (item.first_host_lanes, item.host_lanes) if side == "host" else (item.first_media_lanes, item.media_lanes)
        )
        lanes |= {lane for start in starts for lane in range(start, start + width)}
    return tuple(sorted(lanes)) or (1,)


def _watch(
    module: CmisTransponder,
    clock: Clock,
    checker: PatternCheck | None,
    duration_s: float | None,
    report: Callable[[list[PatternRow]], None],
) -> None:
    began_s, n_rows = clock.now(), 0
    while duration_s is None or clock.now() - began_s < duration_s:  # readings may take longer than an interval
        n_rows += 1
        end_s = began_s + (n_rows * _ROW_S if duration_s is None else min(n_rows * _ROW_S, duration_s))
        clock.sleep(max(end_s - clock.now(), 0.0))
        if checker is None:
            module.module_state()  # raises if the module was removed
        else:
            report(checker.read())


def _collector(rows: list[PatternRow], as_json: bool) -> Callable[[list[PatternRow]], None]:
    def collect(new: list[PatternRow]) -> None:
        rows.extend(new)
        for row in () if as_json else new:
            state = "" if row.has_pattern else "  no pattern"
            errors = "" if row.errors is None else f"  errors {row.errors}"
            echo_text(f"{row.time_s:8.1f} s  lane {row.lane}  BER {_ber_text(row.ber, row.bits)}{errors}{state}")

    return collect


def _totals(rows: Sequence[PatternRow], lanes: Sequence[int]) -> list[dict[str, Any]]:
    totals = []
    for lane in lanes:
        own = [row for row in rows if row.lane == lane]
        if not own:
            continue
        counted = [(row.bits, row.errors) for row in own if row.bits is not None and row.errors is not None]
        ratios = [row.ber for row in own if row.ber is not None]
        bits, errors = (sum(column) for column in zip(*counted, strict=True)) if counted else (None, None)
        ber = sum(ratios) / len(ratios) if ratios else None
        totals.append(
            {
                "lane": lane,
                "seconds": own[-1].time_s,
                "bits": bits,
                "errors": errors,
                "ber": ber if bits is None else errors / bits if bits and errors is not None else None,
                "worst_ber": max(ratios, default=None),
                "has_pattern": all(row.has_pattern for row in own),
            }
        )
    return totals


def _print_totals(device: str, pattern_name: str, totals: Sequence[dict[str, Any]]) -> None:
    rows = [
        (
            item["lane"],
            item["seconds"],
            None if item["bits"] is None else f"{item['bits']:.4g}",
            item["errors"],
            _ber_text(item["ber"], item["bits"]),
            _ber_text(item["worst_ber"], None),
            "yes" if item["has_pattern"] else "no",
        )
        for item in totals
    ]
    headers = ("lane", "seconds", "bits", "errors", "BER", "worst interval", "pattern")
    echo_table(f"{pattern_name} at {device}", headers, rows)


def _ber_text(ber: float | None, bits: int | None) -> str:
    if ber is None:
        return "-"
    return f"{ber:.2e}" if ber or not bits else f"< {_ERROR_FREE_LIMIT / bits:.1e} (95 %)"
