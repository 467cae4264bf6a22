"""What a fault acts on, and what a try has found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.random import Generator

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.errors import ConfigError, LumionError
from tests.chaos.lives import Accident, Killed, Life, LivingFiles

LIT_W = 1e-5
"""Least power at a receiver that counts as light: the sensitivity of the SFP+ modules is 2.6e-5 W."""


@dataclass
class Findings:
    """What a try has found wrong; all are empty if every promise was kept.

    Attributes:
        lost: Circuits that are dark or gone, and nothing says so.
        blamed: Servers that count as failed although the fault did not touch them.
        by_hand: Journals that no program opens or finishes.
        broken: Other promises that were broken.
        story: What happened.
        has_struck: Whether the fault has happened: a program that ends early may leave no instant for it.
    """

    lost: list[str] = field(default_factory=list)
    blamed: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    has_struck: bool = True

    @property
    def is_kept(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.blamed or self.by_hand or self.broken)

    def __str__(self) -> str:
        wrong = {"lost": self.lost, "blamed": self.blamed, "by hand": self.by_hand, "broken": self.broken}
        return "; ".join(f"{name}: {', '.join(found)}" for name, found in wrong.items() if found) or "kept"


@dataclass
class Scene:
    """One bench and the program that runs on it when the fault strikes.

    Attributes:
        rng: Draws the instant, and what is hit.
        life: The program.
        n_steps: Number of steps of that program without a fault.
        emulated: The devices.
        model: The bench file.
        directory: State directory.
        hurt: Modules that the fault touches; their servers may count as failed.
        repairs: What a person does afterwards.
        first_step: First step at which the fault may strike.
        rival: Opens the same bench in a second program.
        hold: Holds the circuits of the bench with a state directory, as ``lumion hold`` of another user does.
        wires: For a device whose connection leads elsewhere, the device at the other end.
        must_refuse: Words in the error with which the program must refuse to work; empty if it need not.
        last: Closed when the try is over.
        findings: What was found.
    """

    rng: Generator
    life: Life
    n_steps: int
    emulated: EmulatedBench
    model: BenchModel
    directory: Path
    files: LivingFiles
    findings: Findings
    hurt: set[str] = field(default_factory=set)
    repairs: list[Callable[[], None]] = field(default_factory=list)
    first_step: int = 1
    rival: Callable[[], contextlib.AbstractContextManager[Any]] | None = None
    hold: Callable[[Path], None] | None = None
    wires: dict[str, str] = field(default_factory=dict)
    must_refuse: str = ""
    last: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def at_random(self, accident: Accident) -> None:
        """Let something happen at a random step of the program."""
        self.life.accidents[int(self.rng.integers(self.first_step, self.n_steps + 1))] = accident

    def choice(self, *names: Any) -> Any:
        """Draw one of several."""
        return names[int(self.rng.integers(len(names)))]

    def names_of(self, kind: str) -> list[str]:
        """Return the devices of a kind; a module with several lanes is one device."""
        return [name for name, device in self.model.devices.items() if device.kind == kind and "/" not in name]

    def repair(self) -> None:
        """Let a person mend what the fault has broken."""
        self.life.is_over = self.life.is_dead
        if self.life.is_dead:
            self.files.close_all(self.life)
        self.files.belong_to_nobody()
        self.findings.has_struck = not self.life.accidents
        self.life.accidents.clear()
        self.life.disk_error, self.life.sync_s = 0, 0.0
        refusals = [line for line in self.findings.story if self.must_refuse and self.must_refuse in line]
        if self.must_refuse and not refusals:
            self.findings.broken.append(f"the program did not refuse with {self.must_refuse!r}")
        for repair in self.repairs:
            with contextlib.suppress(ConfigError):  # it did not come to the fault
                repair()


@dataclass(frozen=True)
class Fault:
    """A fault of the suite.

    Attributes:
        name: Name, as in the table of the documentation.
        layer: Name of the part of the stack that it strikes.
        promise: What is promised, in one sentence.
        strike: Arranges the fault in a scene.
        weight: How often it is tried, relative to others.
    """

    name: str
    layer: str
    promise: str
    strike: Callable[[Any], None]
    weight: float = 1.0


def injected(target: str | None, fault: str, **arguments: Any) -> Callable[[Scene], None]:
    """Return the strike of a scripted fault of the emulator at a random step.

    Args:
        target: Device, kind of device, or ``bench``.
        fault: Name of the fault.
        **arguments: Its arguments; a function gets the scene.
    """

    def strike(scene: Scene) -> None:
        devices = scene.names_of(target or "")
        name = scene.choice(*devices) if devices else target
        values = {key: value(scene) if callable(value) else value for key, value in arguments.items()}
        faults = scene.emulated.faults
        scene.hurt |= _touched(scene, name, values)

        def accident(life: Life, step: Any) -> None:
            del step
            life.log.append(f"{name} {fault} {values}")
            faults.inject(name, fault, **values)

        scene.at_random(accident)
        if any(row.name == fault and row.end is not None for row in faults.list_faults(name)):
            scene.repairs.append(lambda: faults.end(name, fault, **values))

    return strike


def _touched(scene: Scene, name: Any, values: dict[str, Any]) -> set[str]:
    """Return the devices that a fault touches: those that it names, and those with fibres at its port."""
    wiring = scene.model.to_wiring()
    fibres = [(path.port, path.transponder) for path in (*wiring.inputs, *wiring.outputs)]
    values = {**values, "modules at the port": [module for port, module in fibres if port == values.get("port")]}
    named = [name, *values.values()]
    several = [each if isinstance(each, tuple | list) else [each] for each in named]
    return {text for each in several for text in each if isinstance(text, str)}


@contextlib.contextmanager
def survived(scene: Scene) -> Iterator[None]:
    """Let a program end in any way that is allowed: with an error of the package, or killed."""
    try:
        yield
    except Killed:
        scene.findings.story.append("killed")
    except LumionError as error:
        scene.findings.story.append(f"{type(error).__name__}: {error}")
    except ExceptionGroup as group:
        if group.split(LumionError)[1] is not None:
            raise
        scene.findings.story += [f"{type(error).__name__}: {error}" for error in group.exceptions]


def is_lit(emulated: EmulatedBench, circuit: str) -> bool:
    """Return by the emulated truth whether the light of a circuit reaches its receiver."""
    source, target = circuit.split(":")
    return emulated.world.received_by_source_w(target).get(source, 0.0) > LIT_W
