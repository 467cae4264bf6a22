"""Emulated instruments reply as their manuals do (tests/data/wires)."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa
from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
from lumion_hw.emulator.attenuators.keysight_n77xx_attenuator import EmulatedN776xA
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from lumion_hw.emulator.switches.polatis import EmulatedPolatis
from lumion_hw.emulator.temperature.arroyo_tec import EmulatedArroyoTec
from tests.wire_vectors import FOLDER, MakeDevice, ask, is_documented_reply, read_vectors

LF, CRLF, CR = b"\n", b"\r\n", b"\r"
LIGHT_W = 1e-5
INSTRUMENTS: dict[str, tuple[bytes, MakeDevice]] = {
    "amonics_aedfa": (CRLF, lambda clock: EmulatedAedfa("edfa", clock)),
    "arroyo_tec": (CRLF, lambda clock: EmulatedArroyoTec("tec", clock)),
    "keysight_816x": (
        LF,
        lambda clock: EmulatedKeysight816x("pm", clock, rng(), lambda *_: Light(LIGHT_W), modules={1: "81635A"}),
    ),
    "keysight_laser": (LF, lambda clock: EmulatedKeysightLaser("laser", clock, rng())),
    "keysight_n776x": (LF, lambda clock: EmulatedN776xA("voa", clock)),
    "keysight_n7785c": (LF, lambda clock: EmulatedKeysightN7785C("box", clock, rng(), turn=lambda _: None)),
    "keysight_n77xx": (
        LF,
        lambda clock: EmulatedKeysightN77xx(
            "pm", clock, rng(), lambda _: LIGHT_W, model="N7744C", n_ports=4, manufacturer="Keysight Technologies"
        ),
    ),
    "oz_epc04": (CRLF, lambda clock: Epc04("epc", clock, rng(), drive_mv=lambda *_: None)),
    "polatis": (LF, lambda clock: EmulatedPolatis("oxc", clock, n_inputs=24, n_outputs=24)),
    "santec_mpm": (
        CRLF,
        lambda clock: EmulatedSantecMpm("pm", clock, rng(), lambda *_: Light(LIGHT_W), modules=(0, 1, 2, 3, 4)),
    ),
    "santec_tsl": (CR, lambda clock: EmulatedSantecTsl("laser", clock, rng())),
    "thorlabs_pm100": (LF, lambda clock: ThorlabsPm100("pm", clock, rng(), lambda: Light(LIGHT_W))),
    "yokogawa_aq6370": (LF, lambda clock: EmulatedAq6370("osa", clock)),
}


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_every_file_has_its_instrument() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.tsv")) == sorted(INSTRUMENTS)


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_an_emulated_instrument_replies_as_its_manual(instrument: str) -> None:
    end, make_device = INSTRUMENTS[instrument]
    clock = VirtualClock()
    connection = make_device(clock).connect()
    problems = []
    for vector in read_vectors(instrument):
        if vector.sent.startswith("wait "):
            clock.sleep(float(vector.sent.removeprefix("wait ")))
            continue
        reply = ask(connection, clock, vector.sent, end)
        if not is_documented_reply(vector, reply):
            problems.append(f"{vector.sent}: {reply!r} instead of {vector.reply!r} ({vector.source})")
    assert not problems, "\n".join(problems)
