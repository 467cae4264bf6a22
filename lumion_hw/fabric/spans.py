"""Durations of the phases of a recovery, on the bench's clock and in CPU time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lumion_hw.bench.bench import Bench
from lumion_hw.files.escaping import xml_text

EventCallback = Callable[[str, dict[str, Any]], None]
"""Called with each event (``verdict``, ``span``, ``recovered``, ``refused``, ``fade`` …) and its details."""


@dataclass(frozen=True)
class Span:
    """One phase of a recovery.

    Attributes:
        name: ``detected``, ``spare_chosen``, ``route_found``, ``programmed``, ``settled``, ``proven`` or ``link_up``.
        bench_ms: Duration on the bench's clock.
        cpu_ms: CPU time of this process in the phase.
        at_ms: Time from the fault to the end of the phase, on the bench's clock.
        source: ``measured``, or ``emulated`` with the constant that determines the duration.
    """

    name: str
    bench_ms: float
    cpu_ms: float
    at_ms: float
    source: str = "measured"


SOURCES = {
    "detected": "scan period and hold-off of the controller, or refresh and line of the modules",
    "spare_chosen": "plans made beforehand; journal on the disk",
    "route_found": "plans made beforehand",
    "programmed": "command time and line of the controller",
    "settled": "thermal time constant of the heaters",
    "proven": "scans of the photodiodes",
    "link_up": "refresh and line of the modules, averaging of the meter",
}
"""What determines each duration; on an emulated bench these are constants of the emulation."""


class SpanTimer:
    """Records the ends of recovery phases on the bench's clock and in CPU time.

    Args:
        bench: The bench whose clock is used.
        fault_s: Time of the fault on the bench's clock if known, otherwise of the last check without a failure.
        began_cpu_s: CPU time at which the next phase began.
        spans: Earlier phases.
    """

    def __init__(
        self, bench: Bench, fault_s: float, began_cpu_s: float | None = None, spans: Sequence[Span] = ()
    ) -> None:
        self._bench = bench
        self._fault_s = fault_s
        self._last_s = fault_s + (spans[-1].at_ms * 1e-3 if spans else 0.0)
        self._last_cpu_s = time.process_time() if began_cpu_s is None else began_cpu_s
        self.spans = list(spans)

    def rewind(self, name: str) -> None:
        """Discard all phases after the named one; the next phase begins where the named one ended."""
        while self.spans[-1].name != name:
            # The CPU time goes back with the discarded phase, and the next mark counts it again.
            self._last_cpu_s -= self.spans.pop().cpu_ms * 1e-3
        self._last_s = self._fault_s + self.spans[-1].at_ms * 1e-3

    def mark(self, name: str) -> None:
        """End a recovery phase now."""
        now_s, cpu_s = self._bench.clock.now(), time.process_time()
        source = SOURCES.get(name, "")
        span = Span(
            name,
            round((now_s - self._last_s) * 1e3, 3),
            round((cpu_s - self._last_cpu_s) * 1e3, 3),
            round((now_s - self._fault_s) * 1e3, 3),
            f"emulated: {source}" if self._bench.is_emulated else f"measured: {source}",
        )
        self.spans.append(span)
        self._last_s, self._last_cpu_s = now_s, cpu_s
        self._bench.events.add("span", name=name, bench_ms=span.bench_ms, cpu_ms=span.cpu_ms)


class ReportingTimer(SpanTimer):
    """Records recovery phases and reports each one as it ends."""

    def __init__(
        self,
        bench: Bench,
        fault_s: float,
        began_cpu_s: float | None,
        on_event: EventCallback,
        spans: Sequence[Span] = (),
    ) -> None:
        super().__init__(bench, fault_s, began_cpu_s, spans)
        self._emit = on_event

    def mark(self, name: str) -> None:
        """End a recovery phase now and report its duration."""
        super().mark(name)
        self._emit("span", asdict(self.spans[-1]))


def span_documents(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return the phases of a recovery as JSON documents."""
    return [asdict(span) for span in spans]


# The scheme 'bright' of Paul Tol, for colour-blind readers.
_COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb")
_LEFT, _WIDTH, _ROW, _GAP = 170, 600, 26, 58
_ZOOM_SHARE = 1 / 3
"""If the first phases all end within this fraction of the total time, they are drawn on a scale of their own."""
# A single bar on a scale of its own could be compared with nothing.
_MIN_ZOOMED = 2
_MIN_TICKS = 4
LABELS = {
    "detected": "failure detected",
    "spare_chosen": "spare chosen",
    "route_found": "route found",
    "programmed": "heaters programmed",
    "settled": "heaters settled",
    "proven": "light proven",
    "link_up": "link up",
    "signal_lost": "signal lost",
    "group_up": "group formed",
    "first_allreduce": "first all-reduce",
    "state_restored": "state restored",
    "first_step": "first training step",
}
"""Names of phases in pictures."""


def timeline_svg(title: str, names: Sequence[str], at_ms: Sequence[float], sources: Sequence[str]) -> str:
    """Draw the phases of a recovery as SVG: one bar per phase, on an axis of time since the fault.

    Args:
        title: Title.
        names: Names of the phases, in order.
        at_ms: Time from the fault to the end of each phase.
        sources: What determines each duration, shown as tooltip.
    """
    # Without any phase, or with phases that took no time, the axis still needs a length.
    end_ms = max([*at_ms, 1e-3])
    n_short = sum(ended_ms <= _ZOOM_SHARE * end_ms for ended_ms in at_ms)
    lines: list[str] = []
    y = 40
    scales = [(len(names), "")] if n_short < _MIN_ZOOMED else [(n_short, "the first spans"), (len(names), "all spans")]
    for n_spans, caption in scales:
        y = _draw_scale(lines, y, caption, names[:n_spans], at_ms[:n_spans], sources[:n_spans])
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 150}" height="{y}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="24" font-size="15" font-weight="bold">{xml_text(title)}</text>',
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


def _draw_scale(
    lines: list[str], y: int, caption: str, names: Sequence[str], at_ms: Sequence[float], sources: Sequence[str]
) -> int:
    step_ms = _tick_step(max([*at_ms, 1e-3]))
    n_ticks = math.ceil(max([*at_ms, 1e-3]) / step_ms - 1e-9)
    px_per_ms = _WIDTH / (n_ticks * step_ms)
    if caption:
        lines.append(f'<text x="12" y="{y + 14}" fill="#444" font-style="italic">{caption}</text>')
        y += 20
    base = y + _ROW * len(names) + 6
    for tick in range(n_ticks + 1):
        x = _LEFT + tick * step_ms * px_per_ms
        lines += [
            f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{base + 4}" stroke="#ddd"/>',
            f'<text x="{x:.1f}" y="{base + 18}" text-anchor="middle">{tick * step_ms:g}</text>',
        ]
    lines.append(f'<text x="{_LEFT + _WIDTH + 22}" y="{base + 18}">ms after the fault</text>')
    began_ms = 0.0
    for row, (name, ended_ms, source) in enumerate(zip(names, at_ms, sources, strict=True)):
        top = y + row * _ROW
        # A phase without any duration stays visible as a thin line.
        x, width = _LEFT + began_ms * px_per_ms, max((ended_ms - began_ms) * px_per_ms, 1.5)
        lines += [
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{xml_text(LABELS.get(name, name))}</text>',
            f'<rect x="{x:.1f}" y="{top + 3}" width="{width:.1f}" height="{_ROW - 9}" '
            f'fill="{_COLOURS[row % len(_COLOURS)]}"><title>{xml_text(source)}</title></rect>',
            f'<text x="{x + width + 6:.1f}" y="{top + 15}" fill="#444">{ended_ms - began_ms:.2f} ms</text>',
        ]
        began_ms = ended_ms
    lines.append(f'<line x1="{_LEFT}" y1="{base}" x2="{_LEFT + _WIDTH}" y2="{base}" stroke="#444"/>')
    return base + _GAP - 22


def _tick_step(end: float) -> float:
    """Return the tick distance of a time axis: 1, 2 or 5 times a power of ten with at least four ticks."""
    power = 10.0 ** math.floor(math.log10(end))
    return next(step for step in (power, 0.5 * power, 0.2 * power) if end / step >= _MIN_TICKS or step < 0.3 * power)
