"""Running cases in child processes with limits of memory and time, each case from a seed.

A fuzzer is a module that calls `main`: `run` starts `python -m <module> --child <folder>`, and again after each case
that ended the process. A process that dies is a finding, and the next case goes on; one whose case waits is ended.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

CASE_SECONDS = 10
"""Seconds of CPU; a case that takes more hangs. Most take 20 ms, a life of a lake less than a second."""
SILENT_SECONDS = 300
"""A case that takes longer never ends, on the slowest machine: its process prints where, and ends."""
MEMORY_BYTES = 1 << 30
"""More than a process has once it is warm, and what may be resident; the files of a case have 2 MB together."""

RunCase = Callable[[int], str]
"""From a seed to how the case ended, in a few words; raises what breaks a promise."""


class FindingError(Exception):
    """A promise that was broken."""


def check_memory(error: BaseException) -> None:
    """Refuse an error of ours whose cause is a memory that does not follow the size of the file."""
    if "MemoryError" in str(error) or "malloc" in str(error):
        raise FindingError(f"memory must follow the size of the file, got: {error}")


# --- in the child -----------------------------------------------------------------------------------------------------


def run_child(
    first: int, count: int, run_case: RunCase, *, case_seconds: float = CASE_SECONDS, reserved_bytes: int = MEMORY_BYTES
) -> None:
    """Cases `first` to `first + count`, reported line by line; memory and time are limited from here on.

    `reserved_bytes` may be allocated beyond what the process has now, and `MEMORY_BYTES` be resident.
    """
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + reserved_bytes, size + reserved_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def too_long(*_: object) -> None:
        raise FindingError(f"a case must end within {case_seconds} s of CPU")

    signal.signal(signal.SIGPROF, too_long)
    for seed in range(first, first + count):
        faulthandler.dump_traceback_later(SILENT_SECONDS, exit=True)  # a hang in C is deaf to signals
        _say(f"start {seed}")
        signal.setitimer(signal.ITIMER_PROF, case_seconds)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        try:
            how = run_case(seed)
            _check_peak()
            _say(f"end {how}")
        except Exception:  # noqa: BLE001 - what is not ours is a finding
            signal.setitimer(signal.ITIMER_PROF, 0)
            _say(f"finding {json.dumps(traceback.format_exc())}")
        signal.setitimer(signal.ITIMER_PROF, 0)


def _check_peak() -> None:
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) >> 10
    if peak > MEMORY_BYTES >> 20:
        raise FindingError(f"a case must have at most {MEMORY_BYTES >> 20} MiB resident, got {peak} MiB")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# --- in the parent ----------------------------------------------------------------------------------------------------


def run(
    module: str, first: int, count: int, *, seconds: float = 1e9, options: tuple[str, ...] = ()
) -> tuple[Counter[str], list[str]]:
    """How many cases ended how, and the findings, which are also printed."""
    ended: Counter[str] = Counter()
    findings: list[str] = []
    until, seed = time.monotonic() + seconds, first

    def report(what: str) -> None:  # told at once, as whoever stops a long run must not lose it
        findings.append(what)
        _say(what)

    while seed < first + count and time.monotonic() < until:
        folder = Path(tempfile.mkdtemp(prefix="zonebloom-fuzz-"))
        try:
            command = [sys.executable, "-m", module, "--child", str(folder), *options]
            command += ["--seed", str(seed), "--count", str(first + count - seed)]
            for line in _lines_of(command, until):
                what, _, rest = line.partition(" ")
                if what == "start":
                    seed = int(rest)
                elif what == "end":
                    ended[rest] += 1
                    seed += 1
                elif what == "finding":
                    report(f"seed {seed}: {json.loads(rest)}")
                    seed += 1
                elif what == "died":
                    report(f"seed {seed}: died {rest}")
                    if not ended:
                        return ended, findings
                    seed += 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return ended, findings


def _lines_of(command: list[str], until: float) -> Iterator[str]:
    one_thread = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, env=one_thread, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        for line in child.stdout:
            yield line.rstrip("\n")
            if time.monotonic() > until and line.startswith("end"):
                return
        status = child.wait()
        if status:
            yield f"died with status {status}: {child.stderr.read()[-2000:]}"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def main(module: str, run_as_child: Callable[[Path, int, int, list[str]], None], **options: str) -> None:
    """The command line of a fuzzer; `options` are further ones with their defaults, which the child gets as a list."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--child", type=Path)
    for name, default in options.items():
        parser.add_argument(f"--{name}", default=default)
    given = parser.parse_args()
    values = [getattr(given, name) for name in options]
    if given.child:
        run_as_child(given.child, given.seed, given.count, values)
        return
    passed = [word for name, value in zip(options, values, strict=True) for word in (f"--{name}", value)]
    ended, findings = run(module, given.seed, given.count, seconds=given.seconds, options=tuple(passed))
    for what, number in sorted(ended.items()):
        _say(f"{number:8} {what}")
    _say(f"{sum(ended.values())} cases of {module} from seed {given.seed}, {len(findings)} findings")
    sys.exit(bool(findings))
