"""Two operators on served joined meshes, with contradicting wishes: one wins, and the other one changes nothing."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw.storage import save_record
from tests.joined.served_benches import ServedBenches, with_free_ports
from tests.joined.two_racks import FILE, JOINED, SEED, record_of
from tests.waiting import Bound, until

# Three servers, and a program for each command of an operator: half a minute.
pytestmark = pytest.mark.long

WISHES = {"ada": "rack0:sfp-a:rack1:sfp-a", "bob": "rack0:sfp-b:rack1:sfp-a"}
"""Both circuits end at the same module."""
RECEIVING = "rack1"
"""The bench of this module."""


@pytest.fixture
def benches(tmp_path: Path, not_for_ever: Bound) -> Iterator[ServedBenches]:
    """Two racks and a spine, each served by a process of its own."""
    text = JOINED.read_text(encoding="utf-8")
    for number, name in enumerate(FILE.benches):
        text = re.sub(
            rf"{name}: {{bench: [^,]*, record: [^,}}]*",
            f'{name}: {{address: "pva://127.0.0.1:{6100 + number}", emulated_port: {6200 + number}',
            text,
        )
        (tmp_path / f"{name}.yaml").write_bytes(JOINED.with_name(f"{name}.yaml").read_bytes())
        save_record(record_of(name), tmp_path / f"{name}.json")
    (tmp_path / "joined.yaml").write_text(with_free_ports(text), encoding="utf-8")
    with ServedBenches(tmp_path, SEED, not_for_ever).running() as benches:
        yield benches


def begin_both(benches: ServedBenches) -> dict[str, subprocess.Popen[str]]:
    """Let both operators connect at the same time."""
    return {name: benches.begin(name, "connect", wish) for name, wish in WISHES.items()}


def changes(benches: ServedBenches, name: str) -> int:
    """Return the number of changes that an operator or bench has begun."""
    journal = "joined.jsonl" if name in WISHES else "circuits.jsonl"
    return (benches.folder / f"state-{name}" / journal).read_bytes().count(b'"entry":"begun"')


def check_refusal(program: subprocess.Popen[str], error: str) -> None:
    """Check that a program was refused because of the other operator."""
    assert program.returncode in (2, 6), error
    assert re.search(r"has held lease|is prepared|already receives in circuit", error), error


def disconnect_all(benches: ServedBenches, *operators: str) -> None:
    """Disconnect all circuits. They are lost for the operator who connected them, until he disconnects them too."""
    for operator in operators:
        done = benches.lumion("disconnect", "--all", operator=operator)
        assert done.returncode == 0, done.stderr


def test_of_two_operators_one_wins_even_if_one_is_killed(benches: ServedBenches) -> None:
    programs = begin_both(benches)
    errors = {name: program.communicate()[1] for name, program in programs.items()}
    (winner,) = (name for name, program in programs.items() if program.returncode == 0)
    (loser,) = WISHES.keys() - {winner}
    check_refusal(programs[loser], errors[loser])
    assert benches.circuits(winner) == benches.circuits(loser) == {WISHES[winner]}
    disconnect_all(benches, loser, winner)

    # The one that changes the benches is killed meanwhile; the other one is refused, or connects its circuit.
    before = {name: changes(benches, name) for name in (*WISHES, RECEIVING)}
    programs = begin_both(benches)
    until(lambda: changes(benches, RECEIVING) > before[RECEIVING])
    killed = next(name for name in WISHES if changes(benches, name) > before[name])
    (other,) = WISHES.keys() - {killed}
    programs[killed].kill()
    programs[killed].communicate()
    assert programs[killed].returncode == -signal.SIGKILL
    error = programs[other].communicate()[1]
    recovered = benches.lumion("recover", operator=killed)
    assert recovered.returncode == 0, recovered.stderr
    if programs[other].returncode != 0:
        check_refusal(programs[other], error)
        assert benches.circuits(other) <= {WISHES[killed]}
        disconnect_all(benches, other, killed)
        assert benches.lumion("connect", WISHES[other], operator=other).returncode == 0
    assert benches.circuits(killed) == benches.circuits(other) == {WISHES[other]}
