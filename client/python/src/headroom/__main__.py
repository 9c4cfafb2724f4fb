"""``python -m headroom demo``: calls that need different amounts of memory, on a cluster.

``python -m headroom demo --addr URL`` uses a cluster that runs; otherwise the settings of ``rmctl``
apply, and without a cluster ``rmctl dev`` is started for the demonstration.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import List, Optional, Sequence

from headroom import _executor, errors
from headroom._futures import Future
from headroom.errors import format_bytes

MIB = 1 << 20
#: Need of every call but one. MiB.
SMALL = 20
#: Number of the call that needs more.
LARGE_CALL = 5


def count_words(part: int, mebibytes: int) -> int:
    """Stands for work on a part of the input: fills memory, then returns a number."""
    table = bytearray(mebibytes * MIB)
    for offset in range(0, len(table), 4096):
        table[offset] = 1
    return part * 1000 + sum(table[::4096]) // 256


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m headroom", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    demo = verbs.add_parser("demo", help="run calls of which one needs five times its memory")
    demo.add_argument("--addr", help="address of the resource manager")
    demo.add_argument("--calls", type=int, default=12, help="number of calls (default 12)")
    demo.add_argument("--memory", default="64MiB", help="first size of a call (default 64MiB)")
    options = parser.parse_args(arguments)
    try:
        return run_demo(options.addr, max(LARGE_CALL + 1, options.calls), options.memory)
    except errors.HeadroomError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run_demo(addr: Optional[str], calls: int, memory: str) -> int:
    """Runs the demonstration; returns the exit code."""
    began = time.monotonic()
    with _executor.Executor(memory=memory, addr=addr, name="python-demo") as executor:
        print(f"{executor.app} at {executor.address}: {executor.worker_count} calls at once")
        print(f"{calls} calls with {memory} each; call {LARGE_CALL} needs five times as much\n")
        needs = [SMALL] * calls
        needs[LARGE_CALL] = 5 * executor._job.settings.memory // MIB
        futures = [executor.submit(count_words, n, need) for n, need in enumerate(needs)]
        results = [future.result() for future in futures]
        show(futures)
        seconds = time.monotonic() - began
    expected = [count_words(n, need) for n, need in enumerate(needs)]
    same = "equal to" if results == expected else "DIFFERENT from"
    print(f"\nall results after {seconds:.1f} s, {same} those of this process")
    print("\n" + futures[LARGE_CALL].explain())
    return 0 if results == expected else 1


def show(futures: List[Future[int]]) -> None:
    """Prints a line for each call."""
    for number, future in enumerate(futures):
        sizes = ", ".join(attempt.describe_sizes() for attempt in future.attempts)
        peak = "?" if future.peak is None else format_bytes(future.peak)
        print(f"  call {number:<3} {len(future.attempts)} attempts  at {sizes}  peak {peak}")


if __name__ == "__main__":
    sys.exit(main())
