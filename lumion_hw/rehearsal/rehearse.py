"""Supervisor of a rehearsal: starts the job, injects a fault, recovers, checks the final state."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import queue
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.rehearsal.light import LightFabric
from lumion_hw.rehearsal.network import NamespaceNetwork, Network, PairNetwork, reason_without_namespaces
from lumion_hw.rehearsal.timing import Milestone, Milestones
from lumion_hw.rehearsal.worker import run_worker_pool

Fault = Literal["light", "kill", "freeze"]

SILENCE_S = 0.2
"""Silence after which a rank (process of the job) counts as failed: ten heartbeat periods of 20 ms."""
_NO_TORCH = "torch is not installed: pip install 'lumion-hw[rehearsal]'"
_START_S = 120.0
_STEP_S = 30.0
_JOB_MILESTONES = ("group_up", "first_allreduce", "state_restored", "first_step")


@dataclass(frozen=True)
class RehearsalSetting:
    """Settings of a rehearsal.

    Attributes:
        network: ``tap`` (namespaces), ``pairs`` (socket pairs), or ``auto``.
        job: ``torch``, ``numpy``, or ``auto``.
        fault_at: Step after which the fault is injected.
        victim: Rank that fails.
    """

    network: Literal["auto", "tap", "pairs"] = "auto"
    job: Literal["auto", "torch", "numpy"] = "auto"
    steps: int = 24
    fault_at: int = 8
    seed: int = 0
    victim: int = 1


@dataclass(frozen=True)
class Rehearsal:
    """Result of a rehearsal.

    Attributes:
        network: ``tap`` or ``pairs``.
        job: ``torch`` or ``numpy``.
        fell_back: Parts that are not available here, and the reason.
        identical: For each trial, whether all final states equal those of a run without fault bit for bit.
        sha256: Hash of the final state of the run without fault.
    """

    fault: Fault
    trials: tuple[tuple[Milestone, ...], ...]
    network: str
    job: str
    fell_back: tuple[str, ...]
    emulated: tuple[str, ...]
    frames: dict[str, int]
    identical: tuple[bool, ...]
    sha256: str


@dataclass
class _Rank:
    """A worker process of the rehearsal, on one server."""

    server: str
    pid: int
    control: socket.socket
    contact_s: float
    is_beating: bool = False
    has_ended: bool = False
    unread: bytes = b""

    def order(self, order: str, **details: Any) -> None:
        """Send an order to the worker; a worker that has ended is ignored."""
        with contextlib.suppress(OSError):
            self.control.sendall((json.dumps({"do": order, **details}) + "\n").encode())


def choose_network_and_job(setting: RehearsalSetting) -> tuple[str, str, list[str]]:
    """Return the network and the job that this computer supports, and the reason for each substitute.

    Raises:
        ConfigError: A network or job that was requested by name is not possible.
    """
    fell_back: list[str] = []
    network_problem = None if setting.network == "pairs" else reason_without_namespaces()
    if network_problem is not None:
        if setting.network == "tap":
            raise ConfigError(
                f"namespaces with TAP devices are not possible: {network_problem}", hint="Use --network pairs."
            )
        fell_back.append(f"socket pairs instead of namespaces: {network_problem}")
    network = "pairs" if setting.network == "pairs" or network_problem is not None else "tap"
    job_problem = None if importlib.util.find_spec("torch") else _NO_TORCH
    if network == "pairs" and job_problem is None:
        job_problem = "torch's gloo needs network interfaces"
    if setting.job == "torch" and job_problem is not None:
        raise ConfigError(f"a torch job is not possible: {job_problem}", hint="Use --job numpy.")
    if setting.job == "auto" and job_problem is not None:
        fell_back.append(f"a numpy job instead of torch: {job_problem}")
    job = "numpy" if setting.job == "numpy" or job_problem is not None else "torch"
    return network, job, fell_back


def rehearse(
    fabric: LightFabric,
    faults: Sequence[Fault],
    setting: RehearsalSetting | None = None,
    *,
    trials: int = 1,
    report_progress: Callable[[str], None] = lambda text: None,
) -> list[Rehearsal]:
    """Rehearse faults: first a run without fault, then each fault several times.

    At the end all started processes are ended and all namespaces removed, also after an error.

    Args:
        fabric: The light between the servers; the caller closes it.
        faults: Faults to inject.
        setting: Settings.
        trials: Trials per fault.
        report_progress: Called with text that describes the progress.

    Raises:
        ConfigError: A requested part is not possible here.
        DeviceError: The job did not start, or did not recover.
    """
    setting = setting or RehearsalSetting()
    kind, job, fell_back = choose_network_and_job(setting)
    if len(fabric.members) < 2:
        raise ConfigError("a rehearsal needs a job with at least two members")
    report_progress(f"network: {kind}, job: {job}")
    with _sigterm_as_interrupt(), _Stage(fabric, kind, job, setting) as stage:
        report_progress("undisturbed run")
        undisturbed = stage.run(None)[1]
        if len(set(undisturbed)) != 1:
            raise DeviceError("the ranks have different final states after an undisturbed run")
        rehearsals: list[Rehearsal] = []
        for fault in faults:
            finished: list[tuple[Milestone, ...]] = []
            identical: list[bool] = []
            for number in range(trials):
                report_progress(f"{fault}, trial {number + 1} of {trials}")
                milestones, hashes = stage.run(fault)
                finished.append(milestones)
                identical.append(set(hashes) == set(undisturbed))
            rehearsals.append(
                Rehearsal(
                    fault,
                    tuple(finished),
                    kind,
                    job,
                    tuple(fell_back),
                    fabric.emulated(),
                    stage.frames(),
                    tuple(identical),
                    undisturbed[0],
                )
            )
        return rehearsals


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Stage:
    """Network, light and workers of a rehearsal."""

    def __init__(self, fabric: LightFabric, kind: str, job: str, setting: RehearsalSetting) -> None:
        self._fabric, self._job, self._setting = fabric, job, setting
        self._ranks: dict[str, _Rank] = {}
        self._generation = 0
        self._failed: queue.SimpleQueue[tuple[str, str, float]] = queue.SimpleQueue()
        self._milestones = Milestones()
        self._selector = selectors.DefaultSelector()
        self._store: Any = None
        self._network: Network | None = None
        self._worker_pool: socket.socket | None = None
        try:
            # Both fork, so they must come before any thread is started.
            self._network = NamespaceNetwork(fabric.servers) if kind == "tap" else PairNetwork(fabric.servers)
            self._worker_pool = self._start_worker_pool(job, setting.seed)
            self._start_store()
            fabric.start(self._on_light_change, self._light_failed)
        except BaseException:
            self.close()
            raise

    def _start_worker_pool(self, job: str, seed: int) -> socket.socket:
        supervisor_end, pool_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._worker_pool_pid = os.fork()
        if not self._worker_pool_pid:
            try:
                supervisor_end.close()
                run_worker_pool(pool_end, job, seed)
            finally:
                os._exit(1)
        pool_end.close()
        supervisor_end.settimeout(_START_S)
        if supervisor_end.recv(64) != b"ready":
            raise DeviceError("the workers could not be started")
        return supervisor_end

    def _start_store(self) -> None:
        if self._job == "torch":
            dist: Any = importlib.import_module("torch.distributed")
            self._store = dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers and close the network; idempotent."""
        for rank in self._ranks.values():
            rank.control.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)
        self._ranks = {}
        if self._worker_pool is not None:
            self._worker_pool.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._worker_pool_pid, 0)
            self._worker_pool = None
        self._store = None
        self._selector.close()
        if self._network is not None:
            self._network.close()
            self._network = None

    def frames(self) -> dict[str, int]:
        """Return the numbers of frames ``moved`` (forwarded) and ``dropped`` by the network."""
        forwarder = self._opened_network().forwarder
        if forwarder is None:
            raise RuntimeError("the network of the rehearsal is not open")
        return forwarder.counts()

    def _opened_network(self) -> Network:
        if self._network is None:
            raise RuntimeError("the rehearsal is not open")
        return self._network

    # -- light --------------------------------------------------------------------------------------------------------

    def _on_light_change(self, arrives: Any) -> None:
        network = self._network
        if network is not None and network.forwarder is not None:
            network.forwarder.set_light(arrives)

    def _light_failed(self, server: str, detector: str) -> None:
        self._failed.put((server, detector, time.monotonic()))

    # -- workers ------------------------------------------------------------------------------------------------------

    def _start_worker(self, server: str) -> None:
        network = self._opened_network()
        if self._worker_pool is None:
            raise RuntimeError("the rehearsal is not open")
        supervisor_end, worker_end = socket.socketpair()
        kind = b"space" if network.kind == "tap" else b"links"
        socket.send_fds(self._worker_pool, [kind], [worker_end.fileno(), *network.handles_for(server)])
        worker_end.close()
        pid = int(self._worker_pool.recv(64))
        rank = _Rank(server, pid, supervisor_end, time.monotonic())
        self._ranks[server] = rank
        self._selector.register(supervisor_end, selectors.EVENT_READ, rank)

    def _stop_worker(self, server: str) -> None:
        rank = self._ranks.pop(server, None)
        if rank is not None:
            if not rank.has_ended:
                self._selector.unregister(rank.control)
            rank.control.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)

    def _listen(self, timeout_s: float) -> list[tuple[_Rank, dict[str, Any]]]:
        """Return the reports of ranks within a time; the end of the process of a rank counts as a report."""
        messages: list[tuple[_Rank, dict[str, Any]]] = []
        for key, _ in self._selector.select(timeout_s):
            rank: _Rank = key.data
            try:
                data = rank.control.recv(65536)
            except OSError:
                data = b""
            if not data:
                rank.has_ended = True
                self._selector.unregister(rank.control)
                messages.append((rank, {"is": "gone"}))
                continue
            rank.contact_s = time.monotonic()
            lines = (rank.unread + data).split(b"\n")
            rank.unread = lines.pop()
            reports = [json.loads(line) for line in lines]
            rank.is_beating = True
            messages += [(rank, report) for report in reports if report["is"] != "beat"]
        return messages

    def _wait_for_report(self, kind: str, servers: Sequence[str], timeout_s: float) -> None:
        waiting, deadline_s = set(servers), time.monotonic() + timeout_s
        while waiting:
            if time.monotonic() > deadline_s:
                raise DeviceError(f"{', '.join(sorted(waiting))} did not report {kind!r} within {timeout_s:.0f} s")
            for rank, report in self._listen(0.05):
                if report["is"] == kind:
                    waiting.discard(rank.server)
                elif report["is"] in ("gone", "left") and rank.server in waiting:
                    raise DeviceError(f"{rank.server} failed: {report.get('words', 'its process has ended')}")

    # -- a run --------------------------------------------------------------------------------------------------------

    def run(self, fault: Fault | None) -> tuple[tuple[Milestone, ...], list[str]]:
        """Train once, with or without a fault; return milestones, and hashes of the final states in rank order."""
        self._milestones = Milestones()
        self._fabric.restore()
        while not self._failed.empty():
            self._failed.get()
        new = [server for server in self._fabric.servers if server not in self._ranks]
        for server in new:
            self._start_worker(server)
        self._wait_for_report("warm", new, _START_S)
        old = [server for server in self._fabric.servers if server not in new]
        for server in old:
            self._ranks[server].order("reset")
        self._wait_for_report("reset", old, _STEP_S)
        members = list(self._fabric.members)
        self._form_group(members, set())
        return self._watch(members, fault)

    def _form_group(self, members: Sequence[str], new: set[str]) -> None:
        network = self._opened_network()
        self._generation += 1
        details = {
            "generation": self._generation,
            "world": len(members),
            "job": self._job,
            "steps": self._setting.steps,
            "addresses": [network.data_addresses[member] for member in members],
        }
        for number, server in enumerate(members):
            store = [network.control_addresses[server], self._store.port if self._store is not None else 0]
            self._ranks[server].order("form", rank=number, store=store, is_new=server in new, **details)

    def _watch(self, members: list[str], fault: Fault | None) -> tuple[tuple[Milestone, ...], list[str]]:
        victim = members[self._setting.victim]
        hashes: dict[str, str] = {}
        milestones, has_lost_step = self._milestones, False
        deadline_s = time.monotonic() + _STEP_S + self._setting.steps
        while set(hashes) != set(members):
            if time.monotonic() > deadline_s:
                raise DeviceError(
                    f"the training job did not end: {', '.join(sorted(set(members) - set(hashes)))} did not finish"
                )
            for rank, report in self._listen(0.005):
                kind = report["is"]
                if kind == "done" and report["generation"] == self._generation:
                    hashes[rank.server] = report["sha256"]
                if has_lost_step and kind in _JOB_MILESTONES and report["generation"] == self._generation:
                    milestones.mark(kind, "measured", rank.server)
                has_begun = kind in ("step", "first_step") and report["step"] >= self._setting.fault_at
                if fault is not None and has_begun and rank.server == victim and not milestones.has_begun:
                    self._inject_fault(victim, fault)
            failure = self._failed_member(members) if not has_lost_step else None
            if failure is not None:
                if not milestones.has_begun:
                    raise DeviceError(f"{failure[0]} failed before the fault was injected: {failure[1]}")
                has_lost_step = True
                members = self._recover(members, failure[0], failure[1])
        return tuple(milestones.in_order()), [hashes[server] for server in members]

    def _inject_fault(self, victim: str, fault: Fault) -> None:
        if fault == "light":
            self._fabric.cut(victim, self._milestones.fault)
            self._milestones.mark("signal_lost", "emulated: the light is cut at an instant")
        else:
            self._milestones.fault()
            os.kill(self._ranks[victim].pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)

    def _failed_member(self, members: Sequence[str]) -> tuple[str, str] | None:
        if not self._failed.empty():
            server, detector, _ = self._failed.get()
            return (server, f"light ({detector})") if server in members else None
        now_s = time.monotonic()
        for server in members:
            rank = self._ranks[server]
            if rank.has_ended:
                return server, "end of its control connection"
            if rank.is_beating and now_s - rank.contact_s > SILENCE_S:
                return server, f"no beat for {1e3 * (now_s - rank.contact_s):.0f} ms"
        return None

    def _recover(self, members: Sequence[str], failed: str, detector: str) -> list[str]:
        """Recover the job: the other ranks leave their group, the failed server is replaced, a new group is formed."""
        self._milestones.mark("detected", f"measured: {detector}", failed)
        survivors = [server for server in members if server != failed]
        for server in survivors:
            self._ranks[server].order("leave")
        # Fencing: it must not come back with the rank of its replacement.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._ranks[failed].pid, signal.SIGKILL)
        spare = self._fabric.replace(failed, self._milestones.mark)
        self._milestones.mark("link_up", "measured: carrier set at both ends" if self._is_tap else "measured")
        self._stop_worker(failed)
        present_members = [spare if server == failed else server for server in members]
        self._form_group(present_members, {spare})
        return present_members

    @property
    def _is_tap(self) -> bool:
        return self._network is not None and self._network.kind == "tap"
