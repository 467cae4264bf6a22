"""Faults that are more than one write or one scripted fault of the emulator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

from lumion_hw.circuits import BenchLock, lease_clock, lock, lock_owner, state
from lumion_hw.errors import BusyError, LumionError
from tests.chaos.lives import Life, Step, sever
from tests.chaos.scene import Scene


def second_program(scene: Scene) -> None:
    """A second program tries to open the bench at a random instant."""

    def strike(life: Life, step: Step) -> None:
        del step
        lives, scene.files.lives = scene.files.lives, {}
        assert scene.rival is not None
        try:
            with scene.rival():
                scene.findings.broken.append("a second program got the bench")
        except BusyError as error:
            life.log.append(f"the second program was refused: {error.message}")
        finally:
            scene.files.lives = lives

    # Before it holds the lock, the program itself may be the second.
    scene.life.accidents[int(scene.rng.integers(min(20, scene.n_steps), scene.n_steps + 1))] = strike


def hold_of_another_user(scene: Scene) -> None:
    """Another user holds the circuits from a random instant on, with the same state directory or with his own."""
    directory = scene.directory if scene.rng.integers(2) else scene.directory.with_name("another")

    def strike(life: Life, step: Step) -> None:
        if step.device == "mesh0":  # the program could not keep its session alive meanwhile
            life.accidents[life.steps + 1] = strike
            return
        lives, scene.files.lives = scene.files.lives, {}
        assert scene.hold is not None
        try:
            with mock.patch.object(lock, "_user", return_value="another"):
                scene.hold(directory)
        except LumionError as error:
            life.log.append(f"the other user was refused: {error.message}")
            if not isinstance(error, BusyError):
                scene.findings.broken.append(f"refused without saying who holds the bench: {error.message}")
        else:
            scene.findings.broken.append("another user got the bench")
        finally:
            scene.files.lives = lives

    # Before it holds the controller, the program itself may be the second.
    scene.life.accidents[int(scene.rng.integers(min(40, scene.n_steps), scene.n_steps + 1))] = strike


def take_over(scene: Scene) -> None:
    """An operator takes the bench over at a random instant."""

    def strike(life: Life, step: Step) -> None:
        del step
        owner = lock_owner(scene.directory)
        if owner is None:
            return
        lives, scene.files.lives = scene.files.lives, {}
        second = BenchLock(scene.directory, "second", take_over=owner.name)
        try:
            with mock.patch.object(lock, "CHANGE_WAIT_S", 0.0):
                second.__enter__()
        except BusyError as error:
            life.log.append(f"the take-over was refused: {error.message}")
        else:
            life.log.append("taken over")
            scene.repairs.append(lambda: second.__exit__(None, None, None))
        finally:
            scene.files.lives = lives

    scene.at_random(strike)


def clock_step(seconds: float) -> Callable[[Scene], None]:
    """Return the strike that the time of day jumps at a random instant, and stays wrong."""

    def strike(scene: Scene) -> None:
        scene.at_random(lambda life, step: scene.last.enter_context(wrong_time(lambda now_s: now_s + seconds)))

    return strike


def clock_stop(scene: Scene) -> None:
    """The time of day stands still from a random instant on."""

    def strike(life: Life, step: Step) -> None:
        del life, step
        stopped_s = lock.time.time()
        scene.last.enter_context(wrong_time(lambda now_s: stopped_s))

    scene.at_random(strike)


@contextlib.contextmanager
def wrong_time(shown_s: Callable[[float], float]) -> Iterator[None]:
    """Let the time of day be wrong where circuits, leases and locks read it.

    Args:
        shown_s: Returns the time that is shown for a true time, both in s since 1970.
    """
    real = lock.time

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(shown_s(real.time()), tz)

    wrong = SimpleNamespace(time=lambda: shown_s(real.time()), monotonic=real.monotonic, sleep=real.sleep)
    with (
        mock.patch.object(lock, "time", wrong),
        mock.patch.object(lock, "datetime", Wrong),
        mock.patch.object(lease_clock, "datetime", Wrong),
        mock.patch.object(state, "datetime", Wrong),
    ):
        yield


def flipped_bit(name: str) -> Callable[[Scene], None]:
    """Return the strike that one bit of a journal is flipped before the program starts."""

    def strike(scene: Scene) -> None:
        path = scene.directory / name
        if not path.exists():
            scene.findings.story.append(f"there is no {name} yet")
            return
        whole = path.read_bytes()
        damaged = bytearray(whole)
        flipped = int(scene.rng.integers(len(damaged)))
        damaged[flipped] ^= 1 << int(scene.rng.integers(8))
        path.write_bytes(damaged)
        complete = b'"state":' if name == "fabric.jsonl" else b'"entry":"ended"'
        # The header, and everything from the last complete entry on, have to be whole.
        last = whole.rfind(b"\n", 0, whole.rfind(complete)) if complete in whole else -1
        if flipped > last or flipped <= whole.index(b"\n"):
            scene.must_refuse = "is damaged"
            scene.repairs.append(lambda: _restore(scene, path, bytes(damaged), whole))

    return strike


def flipped_fabric_bit(scene: Scene) -> None:
    """An earlier manager has worked, then a bit of the fabric's journal flips."""
    assert scene.rival is not None
    with scene.rival() as manager:
        manager.begin()
        manager.mark_failed("c")
    scene.hurt.add("sfp-c")
    flipped_bit("fabric.jsonl")(scene)


def _restore(scene: Scene, path: Path, damaged: bytes, whole: bytes) -> None:
    if path.read_bytes() != damaged:
        scene.findings.broken.append(f"the damaged journal {path.name} was changed")
    path.write_bytes(whole)


def renumbered(scene: Scene) -> None:
    """Two modules change their serial ports before the program starts."""
    first, second = scene.rng.choice(scene.names_of("sfp-8472"), 2, replace=False)
    scene.wires |= {str(first): str(second), str(second): str(first)}
    scene.must_refuse = "IdentityError"
    scene.repairs.append(scene.wires.clear)


def fibre_cut(scene: Any) -> None:
    """A fibre between two meshes is pulled at a random instant, and plugged in again afterwards."""
    fibres = scene.racks.fibres
    port = int(scene.rng.integers(4))

    def strike(life: Life, step: Step) -> None:
        del step
        life.log.append(f"fibre at spine:{port} pulled")
        fibres.unplug("spine", port)

    scene.at_random(strike)
    scene.repairs.append(fibres.plug)


def connection_lost(scene: Any) -> None:
    """An operator loses the connection to one of the benches at a random instant, until the program ends."""
    scene.at_random(sever(str(scene.choice(*scene.racks.servers))))
