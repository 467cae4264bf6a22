"""Calibration of several benches at once on a dask.distributed cluster.

Workers need the same bench files and the same output folder. After a worker is lost, its bench is not given to another
one, because both could drive the heaters.

dask uses pickle: scheduler and workers must trust everybody who can connect to them
(docs/decisions/0008-process-per-bench.md).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from calibration.run.bench_jobs import BenchJob, BenchOutcome, Ended, PrintLine, calibrate_bench, not_started_outcome
from lumion_hw.cluster import connect_cluster, require_distributed

# Interval at which a worker checks for a stop request, and this process for lost workers.
_POLL_INTERVAL_S = 0.5
# Time to wait for a worker when there is none, because a failed worker may be restarted.
_NO_WORKER_S = 30.0
_SAFE = "the controller's watchdog switches the heaters off"


def calibrate_on_cluster(jobs: Sequence[BenchJob], scheduler: str, workers: int | None, print_line: PrintLine) -> Ended:
    """Calibrate benches on a cluster, ``workers`` at a time; by default as many as the cluster has threads.

    ``scheduler`` is the address ``HOST:PORT``. ``print_line`` is called with a line for every stage of every bench.

    Raises:
        ConfigError: dask.distributed is not installed.
        ConnectError: The scheduler does not answer.
    """
    distributed, client = require_distributed(), connect_cluster(scheduler)
    run = f"lumion-calibrate-{uuid.uuid4().hex}"
    try:
        client.subscribe_topic(run, lambda event: print_line(str(event[1])))
        max_running = workers or max(sum(client.nthreads().values()), 1)
        with client.as_current():
            return _run_jobs(distributed, client, jobs, run, max_running, print_line)
    finally:
        client.unsubscribe_topic(run)
        client.close()


def _run_jobs(
    distributed: Any, client: Any, jobs: Sequence[BenchJob], run: str, max_running: int, print_line: PrintLine
) -> Ended:
    stop = distributed.Event(run, client=client)
    interruption: BaseException | None = None
    waiting, running = list(enumerate(jobs)), dict[Any, tuple[int, str]]()
    outcomes: dict[int, BenchOutcome] = {}
    alive_s = time.monotonic()
    while waiting or running:
        try:
            threads = client.nthreads()
            alive_s = time.monotonic() if threads or running else alive_s
            for worker in _free_workers(threads, running)[: max_running - len(running)] if waiting else ():
                if waiting:
                    number, job = waiting.pop(0)
                    future = client.submit(
                        _calibrate_on_worker, job, run, key=f"{run}-{number}", pure=False, workers=[worker], retries=0
                    )
                    running[future] = number, worker
            for future in [future for future, (_, worker) in running.items() if worker not in threads]:
                number, worker = running.pop(future)
                future.cancel()
                outcomes[number] = _failed(jobs[number], f"worker {worker} was lost; {_SAFE}")
            for future in _finished_futures(distributed, list(running)):
                number, _ = running.pop(future)
                outcomes[number] = _outcome(future, jobs[number])
            if waiting and not running and time.monotonic() - alive_s > _NO_WORKER_S:
                outcomes |= {number: _failed(job, "the cluster has no worker") for number, job in waiting}
                waiting.clear()
        except (KeyboardInterrupt, SystemExit) as error:
            interruption = interruption or error
            stop.set()
            outcomes |= {number: not_started_outcome(job) for number, job in waiting}
            waiting.clear()
            print_line("stopping: waiting until heaters and light of every bench are off")
        except (CancelledError, OSError) as error:
            text = (
                f"the connection to the scheduler was lost ({type(error).__name__}); the worker or the watchdog of "
                "the controller switches the heaters off"
            )
            outcomes |= {number: _failed(jobs[number], text) for number, _ in running.values()}
            outcomes |= {number: _failed(job, "the connection to the scheduler was lost") for number, job in waiting}
            break
    return Ended(tuple(outcomes[number] for number in range(len(jobs))), interruption)


def _free_workers(threads: Mapping[str, int], running: Mapping[Any, tuple[int, str]]) -> list[str]:
    free_threads = Counter(threads)
    free_threads.subtract(Counter(worker for _, worker in running.values()))
    return [
        worker
        for turn in range(max(free_threads.values(), default=0), 0, -1)
        for worker in free_threads
        if free_threads[worker] >= turn
    ]


def _finished_futures(distributed: Any, futures: Sequence[Any]) -> Collection[Any]:
    if not futures:
        time.sleep(_POLL_INTERVAL_S)
        return ()
    try:
        return list(distributed.wait(futures, timeout=_POLL_INTERVAL_S, return_when="FIRST_COMPLETED").done)
    except TimeoutError:
        return ()


def _outcome(future: Any, job: BenchJob) -> BenchOutcome:
    if future.status == "finished":
        answer: BenchOutcome = future.result()
        return answer
    error = future.exception() if future.status == "error" else future.status
    return _failed(job, f"the worker was lost ({error}); {_SAFE}")


def _failed(job: BenchJob, text: str) -> BenchOutcome:
    return BenchOutcome(job.name, "failed", exit_code=1, error=text)


def _calibrate_on_worker(job: BenchJob, run: str) -> BenchOutcome:
    distributed = require_distributed()
    worker, event = distributed.get_worker(), distributed.Event(run)
    polled_s, answer = -_POLL_INTERVAL_S, False

    def stopped() -> bool:
        nonlocal polled_s, answer
        if not answer and time.monotonic() - polled_s > _POLL_INTERVAL_S:
            answer, polled_s = bool(event.is_set()), time.monotonic()
        return answer

    return calibrate_bench(job, stopped, lambda line: worker.log_event(run, line))
