"""The refusals that docs/circuits.md quotes are those that planning prints. Its console blocks run as a session."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumion_hw.bench import BenchModel
from lumion_hw.circuits import CircuitRequest, PlannedCircuit, plan_circuits
from lumion_hw.errors import LumionError
from tests.circuits.plan.planning_cases import SMALL, ZR_PAIR, document, model_of, record_of, with_device

PAGE = Path(__file__).parents[3] / "docs" / "circuits.md"
A_B, B_C, ZR = (CircuitRequest(*ends) for ends in (("sfp-a", "sfp-b"), ("sfp-b", "sfp-c"), ("zr-a", "zr-b")))


def quoted() -> list[str]:
    """Return the messages on the page, each as one line."""
    blocks = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [" ".join(block.split()) for block in blocks]


def refusal(bench: BenchModel, file: Path, request: CircuitRequest, active: Sequence[PlannedCircuit] = ()) -> str:
    with pytest.raises(LumionError) as caught:
        plan_circuits(bench, record_of(file), [request], active=active)
    return str(caught.value)


def test_the_page_of_circuits_quotes_what_planning_prints() -> None:
    small = model_of(document())
    active = plan_circuits(small, record_of(), [A_B]).circuits
    other_wavelength = with_device("zr-b", ZR_PAIR, frequency_thz=194.0)
    assert quoted() == [
        refusal(other_wavelength, ZR_PAIR, ZR),
        refusal(small, SMALL, CircuitRequest("sfp-a", "sfp-b", max_hops=3)),
        refusal(small, SMALL, B_C, active),
    ]
