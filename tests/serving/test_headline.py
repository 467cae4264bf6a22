"""The condition of a bench in one sentence, and events as sentences."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import lumion_hw
from lumion_hw.fabric import FabricAlarm, FabricStatus
from lumion_hw.serving import event_sentences
from lumion_hw.serving.event_sentences import event_sentence
from lumion_hw.serving.headline import headline, short_reason
from lumion_hw.serving.state import (
    AlarmSeverity,
    Point,
    ServedCircuit,
    ServedHealth,
    ServedJob,
    ServedState,
)
from tests.serving.page_states import NOW_S, a_fabric, a_joined_status, a_state

OK, MINOR, MAJOR, INVALID = AlarmSeverity
COLD = "no path from port 35 to port 34 with 46 blocked PUC states and 6 active circuits (proven). Set move_price."


def a_circuit(name: str, margin_db: float | None = 9.0, **changes: Any) -> ServedCircuit:
    source, _, target = name.partition(":")
    circuit = ServedCircuit(name, source, target, NOW_S, 1.0, None, NOW_S, {"margin_db": margin_db}, 0.0, (), "", OK)
    return dataclasses.replace(circuit, **changes)


def quiet(**changes: Any) -> ServedState:
    """Return a state without alarms, with two circuits unless ``changes`` says otherwise."""
    circuits = (a_circuit("a:b"), a_circuit("b:a", 6.27))
    health = ServedHealth(NOW_S, {}, "circuits")
    return dataclasses.replace(a_state(), **{"circuits": circuits, "job": None, "health": health, **changes})


def health(**changes: Any) -> ServedHealth:
    return dataclasses.replace(ServedHealth(NOW_S, {}, "circuits"), **changes)


def fabric(*alarms: FabricAlarm) -> FabricStatus:
    return a_fabric(alarms=alarms)


JOB = ServedJob(2, "calibrate", "ada", NOW_S, "sweeps", 3, 12)
ESTOP = "ESTOP (latched): emergency stop"


@pytest.mark.parametrize(
    ("changes", "severity", "sentence"),
    [
        ({}, OK, "2 circuits up, smallest margin 6.3 dB at b:a"),
        ({"circuits": (a_circuit("a:b"),)}, OK, "1 circuit up, margin 9.0 dB at a:b"),
        ({"circuits": (a_circuit("p0:p4", None), a_circuit("p1:b"))}, OK, "2 circuits up, margin 9.0 dB at p1:b"),
        ({"circuits": (a_circuit("p0:p4", None),)}, OK, "1 circuit up"),
        ({"circuits": ()}, OK, "Calibrated, no circuits connected"),
        (
            {"circuits": (), "record_sha256": ""},
            OK,
            "No calibration record, so no circuits: calibrate the mesh first",
        ),
        ({"circuits": (), "mesh": None}, OK, "5 devices, no mesh"),
        (
            {"circuits": (a_circuit("a:b"), a_circuit("b:a", None, fault="dark. Check it.", severity=MAJOR))},
            MAJOR,
            "1 of 2 circuits up, margin 9.0 dB at a:b; b:a broken: dark",
        ),
        (
            {"circuits": (a_circuit("a:b", unseen="meter0 is silent", severity=INVALID),)},
            INVALID,
            "0 of 1 circuit up; a:b unknown: meter0 is silent",
        ),
        (
            {"circuits": (a_circuit("a:b", marks=("degraded: 1.4 dB lost",), severity=MINOR),)},
            MINOR,
            "1 circuit up, margin 9.0 dB at a:b; a:b degraded: 1.4 dB lost",
        ),
        (
            {"health": health(faults=(ESTOP,), trouble="the controller has tripped")},
            MAJOR,
            "Controller fault ESTOP: all heaters are off, so 2 circuits carry no light",
        ),
        ({"health": health(trouble="disk full")}, MAJOR, "The circuits are not maintained: disk full; 2 circuits up, "
         "smallest margin 6.3 dB at b:a"),
        ({"circuits": (), "job": JOB}, OK, "Calibrating for ada: sweeps, 3 of 12"),
        (
            {"circuits": (), "job": dataclasses.replace(JOB, kind="scan", stage="tls0.wavelength_nm")},
            OK,
            "Scanning for ada: tls0.wavelength_nm, 3 of 12",
        ),
        (
            {"circuits": (), "record_sha256": "", "job": dataclasses.replace(JOB, is_over=True, error="no light")},
            MINOR,
            "The job calibrate failed: no light; no calibration record, so no circuits: calibrate the mesh first",
        ),
        (
            {"fabric": None, "joined": a_joined_status("rack0:sfp-a:rack1:sfp-b")},
            MAJOR,
            "2 circuits up, smallest margin 6.3 dB at b:a; joined circuit rack0:sfp-a:rack1:sfp-b lost: "
            "bench spine has no segment",
        ),
        (
            {"fabric": fabric(FabricAlarm("minor", "spare server3", "cold", COLD))},
            MINOR,
            "2 circuits up, smallest margin 6.3 dB at b:a; spare server3 cold: no path from port 35 to port 34",
        ),
        (
            {"fabric": fabric(FabricAlarm("minor", "s0", "failed, replaced by s2", "no light"))},
            MINOR,
            "2 circuits up, smallest margin 6.3 dB at b:a; s0 failed, replaced by s2: no light",
        ),
        (
            {"fabric": fabric(*(FabricAlarm("minor", name, "without a usable spare") for name in "abc"))},
            MINOR,
            "2 circuits up, smallest margin 6.3 dB at b:a; a and 2 more without a usable spare",
        ),
        (
            {"fabric": fabric(FabricAlarm("major", "job train", "refused", "s0 failed. No spare is left."))},
            MAJOR,
            "2 circuits up, smallest margin 6.3 dB at b:a; job train refused: s0 failed",
        ),
        (
            {
                "circuits": (a_circuit("a:b", fault="dark", severity=MAJOR),),
                "health": health(silent={"sfp-c": (NOW_S, "no answer")}),
            },
            MAJOR,
            "0 of 1 circuit up; a:b broken: dark; sfp-c does not answer",
        ),
        (
            {"health": health(silent={"meter0": (NOW_S, "no answer"), "sfp-a": (NOW_S, "no answer")})},
            INVALID,
            "2 circuits up, smallest margin 6.3 dB at b:a; 2 devices do not answer",
        ),
        (
            {"points": {name: Point(name, None, severity=MAJOR, alarm="over range") for name in ("m.1", "m.2")}},
            MAJOR,
            "2 circuits up, smallest margin 6.3 dB at b:a; m.1 over range and 1 more reading",
        ),
    ],
)  # fmt: skip
def test_the_headline_states_the_condition(changes, severity, sentence) -> None:
    result = headline(quiet(**changes))
    assert result.text == sentence
    assert result.severity == severity


def test_a_long_reason_is_cut() -> None:
    assert len(short_reason("x" * 1000)) == 160
    assert short_reason(COLD) == "no path from port 35 to port 34"


@pytest.mark.parametrize(
    ("event", "data", "severity", "sentence"),
    [
        ("silent", {"device": "meter0", "reason": "no reply within 1.5 s. Check the cable."}, MAJOR,
         "meter0 does not answer: no reply within 1.5 s."),
        ("replaced", {"failed": "s0", "spare": "s2"}, OK, "s0 replaced by s2."),
        ("aligned", {"controller": "pol-a", "remaining_loss_db": 0.006123, "reads": 66}, OK,
         "pol-a aligned with 0.006123 dB of polarization loss left."),
        ("plans ready", {"plans": {"s0": ["s2", "s3"]}}, OK, "Recovery plans ready for s0 (s2, s3)."),
        ("job ended", {"what": "connect", "by": "ada", "error": "NoPathError: no path", "took_s": 1.5}, MAJOR,
         "The job connect of ada failed: NoPathError: no path after 1.5 s."),
        ("proof", {"source": "a", "target": "b", "proven": True, "measured_loss_db": 16.079,
                   "predicted_loss_db": 16.063}, OK, "a:b proven: 16.08 dB of loss, 16.06 dB predicted."),
        ("emulated fault inject", {"target": "meter0", "fault": "no_cable", "arguments": {}, "by": "ada"}, OK,
         "ada injected the fault no_cable at meter0."),
        ("emulated fault clear", {"target": "bench", "fault": "kill_port", "arguments": {"port": 3}, "by": "ada"}, OK,
         "ada cleared the fault kill_port (port 3) of bench."),
        ("silent", {"device": "meter0"}, MAJOR, "Silent: device meter0."),
        ("a new event", {"x": [1, 2], "{y}": None}, OK, "A new event: x 1, 2, {y} none."),
    ],
)  # fmt: skip
def test_events_are_sentences(event, data, severity, sentence) -> None:
    assert event_sentence(event, data) == (severity, sentence)


def test_every_sentence_belongs_to_an_event_of_the_package() -> None:
    root = Path(lumion_hw.__file__).parents[1]
    sources = "\n".join(
        path.read_text() for folder in ("lumion_hw", "calibration") for path in (root / folder).rglob("*.py")
        if path.name != Path(event_sentences.__file__).name
    )  # fmt: skip
    logged = set(re.findall(r'"([a-z][a-z ]+)"', sources))
    for event in event_sentences._SENTENCES:
        assert event.removeprefix("fabric ") in logged, event
