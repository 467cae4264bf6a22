"""docs/claims.md: every figure of ours is printed by the command beside it, or stands in a measured table."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from lumion_hw.cli import main
from lumion_hw.planning import TorusJob, needed_communication_share

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\.?\d)")
_MEASURED = re.compile(r"\[[^\]]+\]\(performance\.md#([\w-]+)\)")


def section(page: str, slug: str) -> str:
    """Return the text of a section of a page, by the name that links use."""
    for part in page.split("\n## ")[1:]:
        title = part.split("\n", 1)[0].lower().replace(" ", "-")
        if re.sub(r"[^\w-]", "", title) == slug:
            return part
    raise AssertionError(f"no section {slug}")


def rows(text: str) -> list[list[str]]:
    """Return the cells of the rows of all tables, without the heads."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    heads = {number - 1 for number, cells in enumerate(lines) if set(cells[0]) == {"-"}}
    return [cells for number, cells in enumerate(lines) if number not in heads and set(cells[0]) != {"-"}]


CLAIMS = [
    cells for slug in ("training-and-communication", "recovery-and-spares") for cells in rows(section(PAGE, slug))
]


def printed(command: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "lumion"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.chdir(ROOT):
        assert main(arguments) == 0
    return out.getvalue()


def missing(text: str, printed_text: str) -> list[str]:
    """Return the numbers of a text that are not in what was printed."""
    return sorted(set(_NUMBER.findall(text)) - set(_NUMBER.findall(printed_text)))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda cells: f"{cells[0]}: {cells[1]}")
def test_our_figure_is_what_its_command_prints(claim: list[str]) -> None:
    _, _, published, command, ours, assumptions = claim
    assert published
    assert assumptions
    if command == "none":
        assert ours == "none"
        return
    measured = _MEASURED.fullmatch(command)
    if measured is not None:
        text = section((ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), measured[1])
    else:
        text = printed(command.strip("`"))
        # Figures of the last column that have decimals and no unit come from the same command.
        ours += " " + " ".join(re.findall(r"with (?:them|idle spares) ([\d.]+)", assumptions))
    assert _NUMBER.findall(ours)
    assert missing(ours, text) == []


def test_a_figure_that_no_command_prints_is_found() -> None:
    assert missing("1.59 and 1.58", "gain 1.59") == ["1.58"]
    assert missing("6.3", "16.3 6.31") == ["6.3"]


def test_every_paper_with_a_claim_is_among_the_sources() -> None:
    sources = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    assert {cells[0] for cells in CLAIMS} == {
        *("LUMION", "Morphlux", "Lumorph", "StragglAR", "ACTINA", "PCCL", "Opus", "PipSwitch")
    }
    assert all(f"| {cells[0]} 20" in sources for cells in CLAIMS)


def test_the_table_over_the_port_rate_is_what_the_command_prints() -> None:
    out = [line.split() for line in printed("lumion plan bandwidth examples/replaced_accelerator.yaml").splitlines()]
    shown = [cells for cells in rows(section(PAGE, "the-factor-of-nearly-2")) if len(cells) == 4 and cells[0].isdigit()]
    assert len(shown) == 6
    assert [cells for cells in shown if cells not in out] == []


def test_the_limits_of_the_factor_are_computed() -> None:
    text = section(PAGE, "the-factor-of-nearly-2")
    share = needed_communication_share(1.72, 1.8)
    assert share is not None
    assert f"needs {share:.0%} of a step".replace("%", " %") in text
    assert needed_communication_share(1.9, 1.8) is None
    share = needed_communication_share(1.9, 2.0)
    assert share is not None
    assert f"twice the rate (published for iperf) and {share:.0%} of a step".replace("%", " %") in text
    # The torus of 8: half of the links, and two flows on one link after the replacement.
    ring = TorusJob((8,), (2,), "ring", (1,), (4,))
    assert (ring.share, ring.loads()[0]) == (0.5, 2)
    large = TorusJob((8, 8, 8), (2, 2, 2), "mesh", (0, 0, 0), (4, 4, 4))
    assert (large.share, large.loads()[0]) == (0.5, 2)
    rack = [line.split() for line in printed("lumion plan bandwidth examples/replaced_in_a_rack.yaml").splitlines()]
    used = {(cells[0], cells[-8]): cells[-7] for cells in rack if len(cells) > 8 and cells[-8] in ("before", "after")}
    assert (used["torus", "before"], used["torus", "after"]) == ("50.0%", "50.0%")
    assert (used["packet", "before"], used["packet", "after"]) == ("100.0%", "25.0%")
    assert (used["circuit", "before"], used["circuit", "after"]) == ("100.0%", "100.0%")


def test_the_epochs_on_the_page_are_what_its_code_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(ROOT / "examples")
    exec(compile(code, "claims", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^# (batch .*)$", code, re.MULTILINE)


@pytest.mark.parametrize(
    ("slug", "figures"),
    [
        ("gains-of-lumorph", ("1.79", "1.09", "4.14", "93.6")),
        ("power-of-rails", ("747", "108", "8.5", "25.4", "6.3", "3.1", "8.1")),
    ],
)
def test_the_text_gives_the_figures_of_its_command(slug: str, figures: tuple[str, ...]) -> None:
    text = section(PAGE, slug)
    (command,) = re.findall(r"`(lumion [^`]+)`", text)
    assert missing(" ".join(figures), text) == []
    assert missing(" ".join(figures), printed(command)) == []
