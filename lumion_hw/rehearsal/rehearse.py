"""Supervisor of a rehearsal: starts the job, injects a fault, recovers, checks the final state."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import queue
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
from lumion_hw.training.ranks import Rank, Ranks

Fault = Literal["light", "kill", "freeze", "server", "spare", "two"]
FAULTS: dict[Fault, str] = {
    "light": "the light of a server is cut",
    "kill": "a process is killed",
    "freeze": "a process is frozen",
    "server": "all processes and the light of a server end",
    "spare": "a process is killed, and a process of the spare while the spare joins",
    "two": "two servers lose a process at once",
}
"""Faults that can be rehearsed."""
_NO_TORCH = "torch is not installed: pip install 'lumion-hw[rehearsal]'"
_QUIET_S = 120.0
"""Longest time without a report of any rank. A slow computer delays the reports, but a rank that works sends them."""
_PORTS_S = 30.0
"""Longest time until data ports with light can send; the kernel needs some ms."""
_JOB_MILESTONES = ("group_up", "first_allreduce", "state_restored", "first_step")


@dataclass(frozen=True)
class RehearsalSetting:
    """Settings of a rehearsal.

    Attributes:
        network: ``tap`` (namespaces), ``pairs`` (socket pairs), or ``auto``.
        job: ``torch`` (data parallel), ``sharded`` (torch, FSDP2), ``numpy``, or ``auto``.
        accelerators: Ranks per server; ``numpy`` has one.
        fault_at: Step after which the fault is injected in the first trial; each further trial has a later step.
        victim: Index of the server that fails, in the first members of the job.
    """

    network: Literal["auto", "tap", "pairs"] = "auto"
    job: Literal["auto", "torch", "sharded", "numpy"] = "auto"
    accelerators: int = 2
    steps: int = 24
    fault_at: int = 8
    seed: int = 0
    victim: int = 1


@dataclass(frozen=True)
class Rehearsal:
    """Result of a rehearsal.

    Attributes:
        network: ``tap`` or ``pairs``.
        job: ``torch``, ``sharded`` or ``numpy``.
        ranks: Number of ranks of the job.
        fell_back: Parts that are not available here, and the reason.
        identical: For each trial, whether all final states equal those of a run without fault bit for bit.
        sha256: Hash of the final state of rank 0 in the run without fault.
    """

    fault: Fault
    trials: tuple[tuple[Milestone, ...], ...]
    network: str
    job: str
    ranks: int
    fell_back: tuple[str, ...]
    emulated: tuple[str, ...]
    frames: dict[str, int]
    identical: tuple[bool, ...]
    sha256: str


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
    if setting.job in ("torch", "sharded") and job_problem is not None:
        raise ConfigError(f"a torch job is not possible: {job_problem}", hint="Use --job numpy.")
    if setting.job == "auto" and job_problem is not None:
        fell_back.append(f"a numpy job instead of torch: {job_problem}")
    wanted = "torch" if setting.job == "auto" else setting.job
    job = "numpy" if job_problem is not None else wanted
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
        fabric: The light between the servers, not used before; the caller closes it.
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
    for fault in faults:
        _check_servers(fabric, fault)
    report_progress(f"network: {kind}, job: {job}")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # every lost connection is a warning
    with _sigterm_as_interrupt(), _Stage(fabric, kind, job, setting) as stage:
        report_progress("undisturbed run")
        undisturbed = stage.run(None)[1]
        if job != "sharded" and len(set(undisturbed)) != 1:
            raise DeviceError("the ranks have different final states after an undisturbed run")
        rehearsals: list[Rehearsal] = []
        for fault in faults:
            finished: list[tuple[Milestone, ...]] = []
            identical: list[bool] = []
            for number in range(trials):
                report_progress(f"{fault}, trial {number + 1} of {trials}")
                milestones, hashes = stage.run(fault, number)
                finished.append(milestones)
                identical.append(hashes == undisturbed)
            rehearsals.append(
                Rehearsal(
                    fault,
                    tuple(finished),
                    kind,
                    job,
                    len(undisturbed),
                    tuple(fell_back),
                    fabric.emulated(),
                    stage.frames(),
                    tuple(identical),
                    undisturbed[0],
                )
            )
        return rehearsals


def _check_servers(fabric: LightFabric, fault: Fault) -> None:
    lost = 2 if fault in ("spare", "two") else 1
    members, spares = len(fabric.members), len(fabric.servers) - len(fabric.members)
    if spares < lost:
        raise ConfigError(f"the fault {fault!r} needs {lost} spare servers, but there are {spares}")
    if fault == "two" and members < 3:
        raise ConfigError(
            "the fault 'two' needs a job on three servers: if all servers fail, nobody has the state",
            hint="Use --fabric switch --servers 3.",
        )


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
        self._per_server = 1 if job == "numpy" else setting.accelerators
        self._ranks = Ranks()
        self._generation = 0
        self._failed: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._milestones = Milestones()
        self._without_state: set[str] = set()
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
        supervisor_end.settimeout(_QUIET_S)
        if supervisor_end.recv(64) != b"ready":
            raise DeviceError("the workers could not be started")
        return supervisor_end

    def _start_store(self) -> None:
        if self._job != "numpy":
            dist: Any = importlib.import_module("torch.distributed")
            self._store = dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers and close the network; idempotent."""
        for server in self._ranks.servers:
            self._stop_workers(server)
        self._ranks.close()
        if self._worker_pool is not None:
            self._worker_pool.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._worker_pool_pid, 0)
            self._worker_pool = None
        self._store = None
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
        self._failed.put((server, f"light ({detector})"))

    # -- workers ------------------------------------------------------------------------------------------------------

    def _start_workers(self, server: str) -> None:
        network = self._opened_network()
        if self._worker_pool is None:
            raise RuntimeError("the rehearsal is not open")
        for index in range(self._per_server):
            supervisor_end, worker_end = socket.socketpair()
            kind = b"space" if network.kind == "tap" else b"links"
            socket.send_fds(self._worker_pool, [kind], [worker_end.fileno(), *network.handles_for(server)])
            worker_end.close()
            self._ranks.add(Rank(server, index, supervisor_end, int(self._worker_pool.recv(64))))

    def _stop_workers(self, server: str) -> None:
        for rank in self._ranks.remove(server):
            _signal(rank, signal.SIGKILL)

    def _wait_for_report(self, kind: str, servers: Sequence[str]) -> None:
        waiting = {rank.name for rank in self._ranks.of(*servers)}
        reported_s = time.monotonic()
        while waiting:
            if time.monotonic() > reported_s + _QUIET_S:
                raise DeviceError(
                    f"{', '.join(sorted(waiting))} did not report {kind!r}, and no rank reported anything for "
                    f"{_QUIET_S:.0f} s"
                )
            for rank, report in self._ranks.listen(0.05):
                reported_s = time.monotonic()
                if report["is"] == kind:
                    waiting.discard(rank.name)
                elif report["is"] in ("gone", "left") and rank.name in waiting:
                    raise DeviceError(f"{rank.name} failed: {report['words']}")

    # -- a run --------------------------------------------------------------------------------------------------------

    def run(self, fault: Fault | None, trial: int = 0) -> tuple[tuple[Milestone, ...], list[str]]:
        """Train once, with or without a fault; return milestones, and hashes of the final states in rank order."""
        self._milestones = Milestones()
        self._fabric.restore()
        self._without_state = set()
        while not self._failed.empty():
            self._failed.get()
        old = self._ranks.servers
        new = [server for server in self._fabric.servers if server not in old]
        for server in new:
            self._start_workers(server)
        self._wait_for_report("warm", new)
        for rank in self._ranks.of(*old):
            rank.order("reset")
        self._wait_for_report("reset", old)
        members = list(self._fabric.members)
        self._form_group(members)
        setting = self._setting
        return self._watch(members, fault, min(setting.fault_at + trial % setting.fault_at, setting.steps - 4))

    def _form_group(self, members: Sequence[str]) -> None:
        network = self._opened_network()
        self._generation += 1
        port = self._store.port if self._store is not None else 0
        self._ranks.form(
            members,
            self._without_state,
            self._generation,
            # The supervisor has another address for every server.
            stores={member: [network.control_addresses[member], port] for member in members},
            steps=self._setting.steps,
            addresses=[network.data_addresses[member] for member in members],
        )

    def _watch(self, members: list[str], fault: Fault | None, fault_at: int) -> tuple[tuple[Milestone, ...], list[str]]:
        victim, is_spare_killed = members[self._setting.victim], fault != "spare"
        hashes, left = dict[str, str](), dict[str, str]()
        milestones = self._milestones
        reported_s = time.monotonic()
        while set(hashes) != {rank.name for rank in self._ranks.of(*members)}:
            if time.monotonic() > reported_s + _QUIET_S:
                late = {rank.name for rank in self._ranks.of(*members)} - set(hashes)
                raise DeviceError(f"the training job did not end: {', '.join(sorted(late))} did not finish{_why(left)}")
            for rank, report in self._ranks.listen(0.005):
                reported_s = time.monotonic()
                self._note(rank, report, hashes, left)
                has_begun = report["is"] in ("step", "first_step") and report["step"] >= fault_at
                if fault is not None and has_begun and rank.server == victim and not milestones.has_begun:
                    self._inject_fault(members, victim, fault)
            failure = self._failed_member(members)
            if failure is not None:
                if not milestones.has_begun:
                    raise DeviceError(f"{failure[0]} failed before the fault was injected: {failure[1]}")
                members = self._recover(members, failure)
                hashes.clear()
                left.clear()
                if not is_spare_killed:
                    is_spare_killed = True
                    _signal(self._ranks.of(members[self._setting.victim])[-1], signal.SIGKILL)
        return tuple(milestones.in_order()), [hashes[rank.name] for rank in self._ranks.of(*members)]

    def _note(self, rank: Rank, report: dict[str, Any], hashes: dict[str, str], left: dict[str, str]) -> None:
        kind = report["is"]
        if report.get("generation") == self._generation:
            if kind == "done":
                hashes[rank.name] = report["sha256"]
            elif kind == "left":
                left[rank.name] = report["words"]
            elif kind in _JOB_MILESTONES and self._milestones.has_begun:
                self._milestones.mark(kind, "measured", rank.server)
                if kind == "first_step":
                    self._without_state.discard(rank.server)

    def _inject_fault(self, members: Sequence[str], victim: str, fault: Fault) -> None:
        ranks = self._ranks.of(victim)
        if fault == "two":
            other = members[self._setting.victim - 1]
            ranks = [ranks[-1], self._ranks.of(other)[-1]]
        elif fault != "server":
            ranks = ranks[-1:]
        if fault in ("light", "server"):
            self._fabric.cut(victim, self._milestones.fault)
            self._milestones.mark("signal_lost", "emulated: the light is cut at an instant")
        else:
            self._milestones.fault()
        for rank in ranks if fault != "light" else ():
            _signal(rank, signal.SIGSTOP if fault == "freeze" else signal.SIGKILL)

    def _failed_member(self, members: Sequence[str]) -> tuple[str, str] | None:
        while not self._failed.empty():
            server, detector = self._failed.get()
            if server in members:
                return server, detector
        return self._ranks.failed(members)

    def _recover(self, members: Sequence[str], first_failure: tuple[str, str]) -> list[str]:
        """Recover the job: the other ranks leave their group, failed servers are replaced, a new group is formed."""
        present = list(members)
        failure: tuple[str, str] | None = first_failure
        while failure is not None:
            failed, detector = failure
            self._milestones.mark("detected", f"measured: {detector}", failed)
            for rank in self._ranks.of(*present):
                if rank.server != failed:
                    rank.order("leave")
            # Fencing: it must not come back with the rank of its replacement.
            self._stop_workers(failed)
            spare = self._fabric.replace(failed, self._milestones.mark)
            present[present.index(failed)] = spare
            self._without_state = {*self._without_state, spare} - {failed}
            failure = self._failed_member(present)
            if failure is None:
                failure = self._wait_for_ports(present)
        self._form_group(present)
        return present

    def _wait_for_ports(self, servers: Sequence[str]) -> tuple[str, str] | None:
        """Wait until all data ports of servers can send; return the failure of a server that happens meanwhile.

        Raises:
            DeviceError: A port has light and cannot send.
        """
        network = self._opened_network()
        deadline_s = time.monotonic() + _PORTS_S
        while dark := network.dark_ports(servers):
            failure = self._failed_member(servers)
            if failure is not None:
                return failure
            if time.monotonic() > deadline_s:
                raise DeviceError(
                    f"the data ports of {', '.join(dark)} could not send {_PORTS_S:.0f} s after their circuits were "
                    "connected",
                    hint="`ip -n NAMESPACE link` shows the state of the port data0.",
                )
            time.sleep(0.0005)
        time.sleep(0.001)  # the queue follows the flag
        self._milestones.mark("link_up", "measured: all data ports can send" if self._is_tap else "measured")
        return self._failed_member(servers)

    @property
    def _is_tap(self) -> bool:
        return self._network is not None and self._network.kind == "tap"


def _why(left: dict[str, str]) -> str:
    return "".join(f"; {name} left its group: {words}" for name, words in sorted(left.items()))


def _signal(rank: Rank, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(rank.pid, number)
