"""Rows deleted from a table until none is left; `delta` and `iceberg` use it.

A delete writes new files, and the rows stay in the old ones. Delta's vacuum removes these. pyiceberg expires snapshots
and removes no file, so the files that only expired snapshots name are removed here.

Design: docs/design/erasing.md#tables
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar
from uuid import uuid4

from zonebloom.erasing.files import PASSES, current_rows, held_files
from zonebloom.erasing.journal import Journal
from zonebloom.ground.errors import ConcurrentCommitError, DataFileError, InvalidArgumentError
from zonebloom.index.index import Index
from zonebloom.search.view import View

_Table = TypeVar("_Table")
AGAIN = "the rows are deleted, old files hold them: call again when fewer writers are at work"
COMMIT_ID = "zonebloom.erasure"
"""Key of the id that a delete writes into its commit."""
_DELETES = 3 * PASSES
"""Attempts to delete; each is lost if another writer commits meanwhile."""
_OF_DATA = (".parquet", ".orc", ".avro", ".puffin")
"""Endings of files that hold values, their bounds or their hashes."""


def delete_all(
    index: Index,
    column: str,
    values: Any,
    journal: Journal,
    prepare: Callable[[_Table, View, Iterable[str]], Callable[[str], Any]],
    *,
    load: Callable[[], _Table],
    has_commit: Callable[[_Table, str], bool],
) -> None:
    """Delete until no row is found. The journal knows the files with rows before each delete, but of those that fail.

    `load` loads the newest version. `prepare` is given this, its view and the paths of the files with rows. It refuses
    what cannot be deleted from, and gives the delete. That must change the version of the view, or nothing. It writes
    the id that it is given into its commit, in which `has_commit` finds it.
    """
    _settle(journal, load, has_commit)
    for _ in range(_DELETES):
        table = load()
        view, rows = current_rows(index, column, values)
        if not rows:
            break
        delete, commit_id = prepare(table, view, rows), uuid4().hex
        journal.add("held", {"commit": commit_id, "files": [asdict(file) for file in held_files(view, rows)]})
        try:
            delete(commit_id)
        except (ConcurrentCommitError, DataFileError, InvalidArgumentError) as error:
            _settle(journal, load, has_commit)
            if not isinstance(error, ConcurrentCommitError):  # the next pass plans anew
                raise
        index.refresh()


def _settle(journal: Journal, load: Callable[[], _Table], has_commit: Callable[[_Table, str], bool]) -> None:
    """Take back the step of a delete that never landed: others may have moved or deleted its rows since."""
    held = journal.unfinished("held")
    if held is not None and not has_commit(load(), held["commit"]):
        journal.take_back()


def with_deleted_rows(view: View) -> Iterator[str]:
    """Data files that hold rows which deletes left in them."""
    paths = [path for path in view.files if (rows := view.dataset.deleted_rows(path)) is not None and len(rows)]
    if paths:
        yield (
            f"{len(paths):,} data files, such as {paths[0]}, with rows that were deleted before without a rewrite: "
            "compact them (rewrite_data_files, or OPTIMIZE and REORG ... APPLY (PURGE)) and erase again"
        )


def unnamed(location: str, paths: Iterable[str], named: Iterable[str]) -> Iterator[str]:
    """Files of data and of their bounds in a table's folder that its current version does not name."""
    others = [path for path in paths if path.endswith(_OF_DATA) and not path.startswith("_delta_log/")]
    for path in sorted(set(others).difference(named)):
        yield f"{location}/{path}: the table does not name it; remove it if no other table and no writer does"
