"""`Journal`: what an erasure did so far, a line of JSON for each step, beside the record until that is written.

Design: docs/design/erasing.md#journal
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from zonebloom.formats.identity import are_same
from zonebloom.ground.errors import ConcurrentCommitError, InvalidArgumentError, StorageError, Words
from zonebloom.storage.json_fields import Shape, array, integer, mapping, record, text
from zonebloom.stores.local_file import is_locked
from zonebloom.stores.output_file import written_whole

_SAME: dict[str, tuple[Shape[Any], Callable[[Any, Any], bool]]] = {
    "dataset": (array(text()), are_same),
    "column": (text(), str.__eq__),
    "num_values": (integer(), int.__eq__),  # values may have line ends, which divide them in the digest
    "values_sha256": (text(), str.__eq__),
}
"""The fields in which a request must equal the one that it continues: their shapes, and what is equal."""
_STEPS = array(mapping(lambda content: content))
_BEGUN: Shape[dict[str, Any]] = record(dict, request=record(dict, **{name: of for name, (of, _) in _SAME.items()}))
_ESCAPED = "backslashreplace"
"""For names of folders that are not UTF-8: JSON has the same escapes."""


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _steps_of(lines: list[Any]) -> list[dict[str, Any]]:
    """The steps of a journal, whose first one is a request; a ValueError if they are none."""
    for step in lines[:1]:
        _BEGUN(step)
    return list(_STEPS(lines))


class Journal:
    """The steps of an erasure; on the disk if it has a record.

    Raises
    ------
    InvalidArgumentError
        The record is there already, or the journal is of another erasure.
    StorageError
        The journal cannot be read or written.
    """

    def __init__(self, record: Path | None, request: Mapping[str, Any]) -> None:
        self._record = record
        self._part = None if record is None else record.with_name(f"{record.name}.part")
        self._steps: list[dict[str, Any]] = []
        self._num_written: int = 0
        if record is not None and self._part is not None and record.exists():
            self._part.unlink(missing_ok=True)  # of a call that was killed after it had written the record
            raise InvalidArgumentError(f"{Words.RECORD} {record} exists already", do="name another file")
        self._file: IO[str] | None = None
        try:
            self._begin(request)
        except BaseException:
            self.close()
            raise

    def _begin(self, request: Mapping[str, Any]) -> None:
        """Go on with the steps of a call that was stopped, or begin with the request."""
        if self._part is not None and os.path.exists(self._part):  # noqa: PTH110 - no error for a long name
            self._file = self._opened(self._part)
            self._steps = self._read(self._part)
        self._num_written = len(self._steps)
        if not self._steps:  # written with the first step, so a request that is refused leaves no file
            self._steps.append({"request": {**request, "started_at": now()}})
        begun = self.last("request")
        differing = [name for name, (_, is_same) in _SAME.items() if not is_same(begun[name], request[name])]
        if differing:
            raise InvalidArgumentError(
                f"{self._part} must be of the same erasure to go on",
                got=f"another {differing[0]}",
                do=f"give the values and the path of the first call, {', '.join(begun['dataset'])}; if the data set "
                "moved, put a link there, or name another record, which counts the rows that are left",
            )

    @staticmethod
    def _opened(part: Path) -> IO[str]:
        """The journal, locked as long as this one is used: a second call would count the same rows."""
        try:
            file = part.open("a", encoding="utf-8", errors=_ESCAPED)
        except OSError as error:
            raise StorageError(f"cannot write {part}: {error}") from error
        if is_locked(file):
            file.close()
            raise ConcurrentCommitError(
                f"{part} must be written by one call at a time", got="another that runs", do="wait for its record"
            )
        return file

    @staticmethod
    def _read(part: Path) -> list[dict[str, Any]]:
        """The steps that were written whole; a last line that was not is cut off."""
        try:
            written = part.read_bytes()
            whole = written[: written.rfind(b"\n") + 1]
            os.truncate(part, len(whole))
            return _steps_of([json.loads(line) for line in whole.splitlines()])
        except (OSError, ValueError) as error:
            raise StorageError(f"cannot read {part}: {error}", do="remove it to begin anew") from error

    def add(self, step: str, content: Any) -> None:
        """Note a step, durably."""
        self._steps.append({step: content})
        if self._part is None:
            return
        self._file = self._file or self._opened(self._part)
        try:
            for unwritten in self._steps[self._num_written :]:
                self._file.write(json.dumps(unwritten, ensure_ascii=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self._num_written = len(self._steps)
        except OSError as error:
            raise StorageError(f"cannot write {self._part}: {error}") from error

    def take_back(self) -> None:
        """Remove the last step; the file too if only the request is left."""
        self._steps.pop()
        if self._part is None or self._file is None:
            return
        try:
            if len(self._steps) == 1:
                self.close()
                self._part.unlink()
                self._file, self._num_written = None, 0
            else:
                os.truncate(self._part, self._part.read_bytes().rfind(b"\n", 0, -1) + 1)
                os.fsync(self._file.fileno())
                self._num_written = len(self._steps)
        except OSError as error:
            raise StorageError(f"cannot write {self._part}: {error}") from error

    def all(self, step: str) -> Iterator[Any]:
        """The contents of all steps of that name, in order."""
        return (entry[step] for entry in self._steps if step in entry)

    def last(self, step: str) -> Any:
        """The content of the last step of that name; None if there is none."""
        return next((entry[step] for entry in reversed(self._steps) if step in entry), None)

    def unfinished(self, step: str) -> Any:
        """The content of the last step of all, if it has that name; else None."""
        return self._steps[-1].get(step)

    def finish(self, document: Mapping[str, Any]) -> None:
        """Write the record, whole or not at all, and remove the journal."""
        if self._record is None or self._part is None:
            return
        if self._record.exists():
            raise InvalidArgumentError(f"{Words.RECORD} {self._record} exists already", do="look at it, and call again")
        with written_whole(self._record) as staged:
            staged.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8", _ESCAPED)
        self.close()
        self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another call go on."""
        if self._file is not None:
            self._file.close()
