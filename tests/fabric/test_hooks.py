"""Hooks of jobs: what a program is told, and that one that fails or hangs is reported and never left running."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.errors import ConfigError
from lumion_hw.fabric import FabricManager, FabricStatus
from lumion_hw.fabric.hooks import CommandHooks, HookCalls, NoHooks
from lumion_hw.fabric.requests import FabricRequest
from tests.fabric.managed_fabric import managed
from tests.waiting import until

SHELL_HOOK = Path(__file__).parents[2] / "examples" / "job_hook.sh"
A_TO_C = ["sfp-a:sfp-c", "sfp-c:sfp-a"]


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def status_of(manager: FabricManager) -> FabricStatus:
    found = manager.status
    assert found is not None
    return found


def proven(manager: FabricManager) -> list[str]:
    manager.check_job_circuits()
    return sorted(circuit.name for circuit in manager.service.state.circuits)


def wait_until_ended(pid: int) -> None:
    def has_ended() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        return state == "Z"

    until(has_ended)


def test_the_environment_repeats_the_arguments_and_names_the_spare(bench: Bench, tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = '"$LUMION_EVENT,$LUMION_JOB,$LUMION_MEMBERS,$LUMION_FAILED,$LUMION_REPLACED_BY,$*"'
    hook = script(tmp_path / "hook", f"echo {line} >> {log}")
    with (
        contextlib.closing(CommandHooks([str(hook), "--mine"], 30.0)) as hooks,
        managed(bench, tmp_path, hooks=hooks) as manager,
    ):
        manager.begin()
        assert not log.exists(), "nothing has happened to the job yet"
        manager.mark_failed("b")
    assert log.read_text(encoding="utf-8").splitlines() == [
        "stop,a-b,a b,b,,--mine stop a-b a b b",
        "rebuild,a-b,a c,b,c,--mine rebuild a-b a c",
        "restore,a-b,a c,b,c,--mine restore a-b a c",
        "go,a-b,a c,b,c,--mine go a-b a c",
    ]


def test_the_shell_script_of_the_examples_is_a_hook(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = tmp_path / "members"
    monkeypatch.setenv("JOB_FILE", str(members))
    with managed(bench, tmp_path, hooks=CommandHooks([str(SHELL_HOOK)], 30.0)) as manager:
        manager.begin()
        manager.mark_failed("b")
        assert members.read_text(encoding="utf-8").split() == ["a", "c"]
        assert status_of(manager).jobs[0].condition == "connected"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('[ "$1" != rebuild ] || exit 7', "rebuild ended with exit code 7"),
        ('[ "$1" != stop ] || exit 1', "stop ended with exit code 1"),
        ('[ "$1" != go ] || sleep 1000', "go took longer than 0.3 s and was ended"),
    ],
)
def test_a_hook_that_fails_or_hangs_marks_its_job_while_the_circuits_stay_proven(
    bench: Bench, tmp_path: Path, body: str, reason: str
) -> None:
    hook, events = script(tmp_path / "hook", body), list[str]()
    hooks = CommandHooks([str(hook)], 0.3 if "sleep" in body else 30.0)
    with managed(
        bench, tmp_path, hooks=hooks, on_event=lambda event, data: events.append(f"{event}: {data.get('words')}")
    ) as manager:
        manager.begin()
        recovery = manager.mark_failed("b")
        assert recovery is not None
        assert recovery.spare == "c"
        assert proven(manager) == A_TO_C
        words = f"the job hook {hook} {reason}"
        assert f"job not resumed: job a-b was not resumed: {words}" in events
        worst = status_of(manager).alarms[0]
        assert (worst.severity, worst.subject, worst.condition, worst.reason) == (
            "major", "job a-b", "not resumed", words,
        )  # fmt: skip
        assert status_of(manager).jobs[0].condition == "not resumed"
        script(hook, "exit 0")
        FabricRequest("recover").perform(manager)
        assert status_of(manager).jobs[0].condition == "connected"
        assert events[-1] == "job resumed: job a-b was resumed"


def test_a_program_that_cannot_be_run_does_not_cost_the_job_its_circuits(bench: Bench, tmp_path: Path) -> None:
    with managed(bench, tmp_path, hooks=CommandHooks([str(tmp_path / "missing")], 30.0)) as manager:
        manager.begin()
        manager.mark_failed("b")
        assert proven(manager) == A_TO_C
        assert "cannot be run: No such file" in status_of(manager).alarms[0].reason


def test_what_a_hanging_program_has_started_is_killed_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    hook = script(tmp_path / "hook", f"sleep 1000 &\necho $! > {pid_file}\nwait")
    with pytest.raises(ConfigError, match=r"took longer than 0\.5 s and was ended"):
        CommandHooks([str(hook)], 0.5).rebuild("train", ["a", "c"])
    wait_until_ended(int(pid_file.read_text(encoding="ascii")))


def test_a_further_failure_and_the_end_of_the_manager_kill_a_program_that_still_runs(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    hook = script(tmp_path / "hook", f'echo $$ > {pid_file}.$1\n[ "$1" = rebuild ] && exec sleep 1000\nexit 0')
    hooks = CommandHooks([str(hook)], 30.0)
    calls = HookCalls(hooks, in_background=True)
    pids, written = [], Path(f"{pid_file}.rebuild")
    for members in (["a", "c"], ["a", "d"]):
        calls.resume("train", members)
        until(lambda: written.exists() and written.read_text(encoding="ascii").strip())
        pids.append(int(written.read_text(encoding="ascii")))
        written.unlink()
        if members[-1] == "c":
            calls.stop("train", members, "c")
            wait_until_ended(pids[0])
    hooks.close()
    wait_until_ended(pids[1])


class SlowHooks(NoHooks):
    """Hooks whose first ``rebuild`` waits until it may end."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        self.calls.append(f"rebuild {' '.join(members)}")
        if len(self.calls) == 1:
            self.has_begun.set()
            assert self.may_end.wait(10.0)

    def restore(self, job: str, members: Sequence[str]) -> None:
        self.calls.append(f"restore {' '.join(members)}")


def test_when_the_spare_dies_too_the_hooks_for_it_no_longer_count() -> None:
    hooks = SlowHooks()
    calls = HookCalls(hooks, in_background=True)
    calls.resume("train", ["a", "c"])
    assert hooks.has_begun.wait(10.0), "the manager goes on watching while the hook runs"
    assert calls.finished() == []
    calls.stop("train", ["a", "c"], "c")
    calls.resume("train", ["a", "d"])
    finished: list[tuple[str, str]] = []
    while not finished:
        finished += calls.finished()
    hooks.may_end.set()
    for thread in threading.enumerate():
        if thread.name == "lumion-hooks-train":
            thread.join(10.0)
    assert (finished, calls.finished()) == ([("train", "")], [])
    assert hooks.calls == ["rebuild a c", "rebuild a d", "restore a d"]


def test_the_next_manager_calls_the_hooks_that_a_killed_manager_could_not(bench: Bench, tmp_path: Path) -> None:
    class Killed(BaseException):
        """The manager is killed."""

    class Killing(NoHooks):
        def rebuild(self, job: str, members: Sequence[str]) -> None:
            raise Killed

    with managed(bench, tmp_path, hooks=Killing()) as manager:
        manager.begin()
        with pytest.raises(Killed):
            manager.mark_failed("b")
    log = tmp_path / "log"
    hook = script(tmp_path / "hook", f'echo "$*" >> {log}')
    with managed(bench, tmp_path, hooks=CommandHooks([str(hook)], 30.0)) as manager:
        assert manager.state.not_resumed == {"a-b": "its hooks have not ended yet"}
        manager.begin()
        assert manager.state.not_resumed == {}
    assert log.read_text(encoding="utf-8").split("\n")[:-1] == ["rebuild a-b a c", "restore a-b a c", "go a-b a c"]
