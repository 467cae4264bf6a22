"""``yokogawa-aq6370``: Yokogawa AQ6370 family of optical spectrum analysers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.interfaces import SpectrumAnalyzer


class SpectrumAnalyzerModel(DeviceModel):
    """Yokogawa AQ6370, AQ6370B, AQ6370C, AQ6370D or AQ6370E (SCPI; TCP port 10001 with its login, GPIB, VISA).

    Opening does not change the sweep settings.
    """

    kind: Literal["yokogawa-aq6370"]
    model: Literal["AQ6370", "AQ6370B", "AQ6370C", "AQ6370D", "AQ6370E"] | None = Field(
        None, description="Expected model."
    )
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    user: str = Field("anonymous", pattern=r"^[!-~]{1,11}$", description="User name of the TCP port.")
    password_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable that holds the password of the TCP port; not needed for anonymous.",
    )


def _open(name: str, model: SpectrumAnalyzerModel, link: Link, clock: Clock) -> SpectrumAnalyzer:
    from lumion_hw.drivers.analyzers.yokogawa_aq6370 import YokogawaAq6370

    return model.open_device(
        YokogawaAq6370(
            link,
            clock,
            device=name,
            expected_model=model.model,
            expected_serial=model.serial,
            user=model.user,
            password_env=model.password_env,
        )
    )


def _emulate(bench: EmulatedBench, name: str, model: SpectrumAnalyzerModel) -> EmulatedAq6370:
    from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370

    return EmulatedAq6370(
        name,
        bench.clock,
        model=model.model or "AQ6370D",
        serial=model.emulated_serial(name),
        user=model.user,
        spectrum=lambda: bench.world.spectrum(name),
        rng=bench.rng(name),
    )


KIND = DeviceKind(
    title="Yokogawa AQ6370 optical spectrum analyser",
    role=Role.SPECTRUM_ANALYZER,
    model=SpectrumAnalyzerModel,
    open=_open,
    emulate=_emulate,
    scpi=ScpiIdentity("yokogawa", "AQ6370[BCDE]?$", names_model=True),
)
