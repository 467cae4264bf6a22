"""Circuits over several meshes, put together from the circuits of each bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lumion_hw.fabric.status import Severity
from lumion_hw.interfaces.wiring import end_name
from lumion_hw.joined.benches import BenchCircuits
from lumion_hw.joined.file import MeshFibre


@dataclass(frozen=True)
class LinkStatus:
    """One circuit over several meshes.

    Attributes:
        name: Name of the circuit, such as ``rack0:sfp-a:rack1:sfp-b``; an end that is missing is a port.
        segments: Bench and name of each active segment, in the order of the light.
        margin_db: Margin at the receiver when it was last measured; ``None`` if unknown or lost.
        problems: Missing segments, and warnings of the benches; empty if the circuit is complete.
        is_lost: Whether a segment is missing or carries no light.
    """

    name: str
    segments: tuple[tuple[str, str], ...]
    margin_db: float | None
    problems: tuple[str, ...]
    is_lost: bool = False

    @property
    def severity(self) -> Severity:
        """``major`` if the circuit is lost, ``minor`` with a warning."""
        return "major" if self.is_lost else "minor" if self.problems else "none"

    def document(self) -> dict[str, Any]:
        """Return the status as a JSON document."""
        return {
            "circuit": self.name,
            "segments": [f"{bench}: {name}" for bench, name in self.segments],
            "margin_db": self.margin_db,
            "problems": list(self.problems),
            "is_lost": self.is_lost,
        }


def link_statuses(
    fibres: Sequence[MeshFibre], benches: Mapping[str, BenchCircuits | str], known: Sequence[str] = ()
) -> list[LinkStatus]:
    """Return all circuits that cross a fibre between meshes.

    Args:
        fibres: All fibres.
        benches: The circuits of each bench, or the reason why it does not answer.
        known: Names of circuits that should be active. The remaining segments of such a circuit are shown under its
            name; without any segment, it is shown as lost.
    """
    links = list(_active_links(fibres, benches))
    for name in known:
        if all(link.name != name for link in links):
            links = _with_lost(name, links)
    return links


def _active_links(fibres: Sequence[MeshFibre], benches: Mapping[str, BenchCircuits | str]) -> Iterator[LinkStatus]:
    segments = {
        (bench, str(document["circuit"]).split(":")[0]): document
        for bench, state in benches.items()
        if isinstance(state, BenchCircuits)
        for document in state.circuits
    }
    into = {(fibre.end.bench, end_name(fibre.end.port)): fibre for fibre in fibres}
    out_of = {(fibre.start.bench, end_name(fibre.start.port)): fibre for fibre in fibres}
    reached = {
        (out_of[bench, target].end.bench, end_name(out_of[bench, target].end.port))
        for bench, target in ((bench, _target(document)) for (bench, _), document in segments.items())
        if (bench, target) in out_of
    }
    for (bench, source), document in segments.items():
        # A circuit begins at a module, or at a fibre into which no active segment sends.
        is_first = (bench, source) not in into or (bench, source) not in reached
        if is_first and ((bench, source) in into or (bench, _target(document)) in out_of):
            yield _link(bench, source, segments, into, out_of, benches)


def _with_lost(name: str, links: Sequence[LinkStatus]) -> list[LinkStatus]:
    """Put the remaining segments of a known circuit together under its name."""
    bench, module, *target = name.split(":")
    start, end = f"{bench}:{module}:", f":{':'.join(target)}"
    parts = [link for link in links if link.is_lost and (link.name.startswith(start) or link.name.endswith(end))]
    segments = tuple(segment for part in parts for segment in part.segments)
    problems = tuple(dict.fromkeys(problem for part in parts for problem in part.problems))
    lost = LinkStatus(name, segments, None, problems or ("no bench has a segment of it",), is_lost=True)
    return [*(link for link in links if link not in parts), lost]


def _link(
    bench: str,
    source: str,
    segments: Mapping[tuple[str, str], Mapping[str, Any]],
    into: Mapping[tuple[str, str], MeshFibre],
    out_of: Mapping[tuple[str, str], MeshFibre],
    benches: Mapping[str, BenchCircuits | str],
) -> LinkStatus:
    problems, is_lost = [], (bench, source) in into
    if (bench, source) in into:
        fibre = into[bench, source]
        problems.append(_missing(fibre.start.bench, f"to {end_name(fibre.start.port)}", benches))
    chain, first, end, margin_db = [], f"{bench}:{source}", f"{bench}:{source}", None
    while (document := segments.get((bench, source))) is not None:
        target = _target(document)
        chain.append((bench, str(document["circuit"])))
        problems += [f"{bench}: {mark}" for mark in document["marks"]]
        is_lost |= bool(document["broken"])
        end, margin_db = f"{bench}:{target}", document["margin_db"]
        if (bench, target) not in out_of:
            break
        margin_db = None
        fibre = out_of[bench, target]
        bench, source = fibre.end.bench, end_name(fibre.end.port)
        if (bench, source) not in segments:
            is_lost = True
            problems.append(_missing(bench, f"from {source}", benches))
    return LinkStatus(f"{first}:{end}", tuple(chain), None if is_lost else margin_db, tuple(problems), is_lost)


def _missing(bench: str, where: str, benches: Mapping[str, BenchCircuits | str]) -> str:
    state = benches.get(bench)
    if isinstance(state, str):
        return f"bench {bench} does not answer: {state}"
    return f"bench {bench} has no segment {where}"


def _target(document: Mapping[str, Any]) -> str:
    return str(document["circuit"]).split(":")[1]


def segments_by_bench(links: Sequence[LinkStatus]) -> dict[str, tuple[str, ...]]:
    """Return the names of the segments on each bench, sending benches first."""
    result: dict[str, tuple[str, ...]] = {}
    for bench, name in _in_order(links):
        result[bench] = (*result.get(bench, ()), name)
    return result


def _in_order(links: Sequence[LinkStatus]) -> Iterator[tuple[str, str]]:
    for stage in range(max((len(link.segments) for link in links), default=0)):
        for link in links:
            if len(link.segments) > stage:
                yield link.segments[stage]
