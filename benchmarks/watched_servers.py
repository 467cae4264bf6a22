"""Strike five server processes, one of which watches all, and count the circuits that get dark without an alarm.

    .venv/bin/python benchmarks/watched_servers.py [--rounds 4] [--seed 1]

Four racks and a spine (`examples/four_racks`), each served and emulated by processes of its own, with four circuits
over the spine. Before half of the faults, an operator begins to connect one more circuit. The table has the number of
tries of each fault, those with an alarm due and raised, the longest time from the fault (or from the restart of the
watching server) to the alarm, and the circuits that were dark without an alarm.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.joined.watched_servers import FAULTS, Try, campaign

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="Tries of each fault.")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    tries: dict[str, list[Try]] = defaultdict(list)
    with TemporaryDirectory() as folder:
        begun_s = time.monotonic()
        for name, attempt in campaign(Path(folder), given.rounds, given.seed):
            tries[name].append(attempt)
            result = "; ".join((*attempt.lost, *attempt.broken)) or "kept"
            alarm = "no alarm due" if attempt.alarm_s is None else f"alarm after {attempt.alarm_s:.1f} s"
            print(f"{time.monotonic() - begun_s:5.0f} s  {name}: {alarm}; {result}", file=sys.stderr, flush=True)
    print("| fault | tries | alarms due | raised | longest time to the alarm, s | circuits lost without alarm |")
    print("|---" * 6 + "|")
    for name in FAULTS:
        own = tries[name]
        due = [attempt for attempt in own if attempt.dark]
        times_s = [attempt.alarm_s for attempt in due if attempt.alarm_s is not None]
        longest = f"{max(times_s):.1f}" if times_s else ""
        lost = sum(len(attempt.lost) for attempt in own)
        print(f"| {name} | {len(own)} | {len(due)} | {len(times_s)} | {longest} | {lost} |")
    if any(attempt.lost or attempt.broken for own in tries.values() for attempt in own):
        raise SystemExit("a promise was broken")


if __name__ == "__main__":
    main()
