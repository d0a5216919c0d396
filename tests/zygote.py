"""A process that has loaded everything, and forks: each child that a test kills costs milliseconds, not seconds.

It has no threads when it forks. `Zygote` talks to it from a test; run as a script it is the process itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import zonebloom as zb
from tests.lives import write


class Zygote:
    """A context manager; `fork` starts a child, which `wait` waits for."""

    def __enter__(self) -> Self:
        root = Path(__file__).parent.parent
        command = [sys.executable, "-m", "tests.zygote"]
        self._process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def fork(self, what: str, root: Path | str, **options) -> int:
        """The id of a child that does `what`, a function of this module."""
        return self._ask({"what": what, "root": str(root), **options})

    def wait(self, child: int) -> int:
        """The exit code of a child; less the number of the signal that killed it."""
        return self._ask({"wait": child})

    def _ask(self, request: dict) -> int:
        self._process.stdin.write(json.dumps(request) + "\n")
        return int(self._process.stdout.readline())


# --- what children do -------------------------------------------------------------------------------------------------


def build(root: str) -> None:
    """A first build, in steps, elsewhere; one that was begun goes on."""
    zb.build_index(root, "k", rows_per_zone=10, index=f"{root}/_other", commit_every=300, workers=2)


def rebuild(root: str) -> None:
    while True:
        zb.build_index(root, "s", rows_per_zone=10, overwrite=True, kind="locator", workers=2)


def refresh(root: str) -> None:
    while True:
        zb.open_index(root).refresh("full", workers=2)


def optimize(root: str) -> None:
    while True:
        index = zb.open_index(root)
        index.refresh("full", workers=2)
        index.optimize()


def vacuum(root: str) -> None:
    while True:
        index = zb.open_index(root)
        index.refresh("full", workers=2)
        index.vacuum(older_than=timedelta(0))


def commit_often(root: str, number: int, commits: int, index: str = "", options: dict[str, str] | None = None) -> None:
    """Add a file and index it, again and again; the index lies beside the data, or at a URL."""
    index = zb.open_index(index or root, storage_options=options)
    for turn in range(commits):
        name = f"w{number}-{turn}.parquet"
        write(Path(root) / name, range(10_000 * number + 10 * turn, 10_000 * number + 10 * turn + 10))
        done = index.refresh(paths=[name], workers=1)
        assert (done.num_files_added, done.num_files_dropped) == (1, 0)


def erase(root: str, record: str, steps: int) -> None:
    """Erase rows, and die by SIGKILL before one of the steps that change the disk; without an error if there are fewer.

    A step is the writing of a line of the journal or of the record, a rename, a removal, and a commit of the index.
    """
    left = [steps]

    def dying(owner: object, name: str) -> None:
        step = getattr(owner, name)

        def counted(*args, **options):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return step(*args, **options)

        setattr(owner, name, counted)

    for owner, name in ((os, "fsync"), (os, "rename"), (Path, "replace"), (Path, "unlink"), (os, "link")):
        dying(owner, name)
    zb.erase(root, "k", [7, 107, 207], record=record)


# --- the process ------------------------------------------------------------------------------------------------------


def warm_up() -> None:
    """Load what a child will need, kernels too."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root / "f.parquet", range(5000))
        index = zb.build_index(root, ["k", "s"], rows_per_zone=10, workers=2)
        index.optimize()
        write(root / "g.parquet", range(10))
        index.refresh(workers=2)
        index.vacuum(older_than=timedelta(0))
        assert index.to_table("k = 7").num_rows == 2
        zb.erase(root, "k", [3])


def main() -> None:
    warnings.simplefilter("error")
    warm_up()
    print("ready", flush=True)  # noqa: T201 - the protocol
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the protocol
            continue
        child = os.fork()
        if not child:
            code = 1
            try:
                globals()[request.pop("what")](**request)
                code = 0
            except BaseException:  # noqa: BLE001 - told by the exit code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)  # noqa: T201 - the protocol


if __name__ == "__main__":
    main()
