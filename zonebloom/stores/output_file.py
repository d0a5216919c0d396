"""Files that a user names for a result: whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from zonebloom.ground.errors import StorageError, first_line


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to; the file there takes the place of `path`, durably, when the block has ended well.

    Raises
    ------
    StorageError
        It cannot be written. What was at `path` stays.
    """
    from zonebloom.stores.local_file import alone  # noqa: PLC0415 - `--help` must not load Arrow

    target = Path(os.path.realpath(path))  # a link stays, its file is replaced
    staged = target.with_name(f".{target.name}.tmp")
    try:
        with alone(staged) as is_alone:
            if not is_alone:
                raise StorageError(f"cannot write {path}: another call writes it")
            try:
                yield staged
                with staged.open("r+b") as file:
                    os.fsync(file.fileno())
                staged.replace(target)
            finally:
                with contextlib.suppress(OSError):
                    staged.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or first_line(error)}") from error
