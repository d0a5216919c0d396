"""Interleavings of writers and readers, replayed from a seed against the real code.

Writers, a reader and whoever owns the lake are greenlets over one store in memory (`memory.py`): before each operation
on the store or the lake any other may go first. A seed says who starts from which index and does what, who goes first,
who is killed between two operations, and which answer of the store is lost. What must hold:

- A search finds all rows of its listing, at any moment.
- Each version is the one before it and a change: what disappears was changed or deleted in the lake, or is made anew.
- No fragment has zones twice, and no id names two files.
- Who was told that a commit succeeded finds it, and afterwards one refresh makes all right.

`python -m tests.fuzz.interleavings --seconds 600 --seed 1`; a finding says what happened, operation by operation.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from greenlet import GreenletExit, getcurrent, greenlet

import zonebloom as zb
from tests.fuzz.children import FindingError, main, run_child
from tests.fuzz.memory import ROWS_OF_A_FILE, MemoryLake, MemoryStore, Objects
from zonebloom import errors
from zonebloom.index.index import Index
from zonebloom.indexing.create import build
from zonebloom.predicates import And
from zonebloom.search.query import Query
from zonebloom.storage.fragments import read_fragments
from zonebloom.storage.manifest import Manifest, _parsed, list_versions, read_version
from zonebloom.storage.options import BuildOptions, IndexOptions, Kind
from zonebloom.storage.snapshot import load_snapshot

PATHS = tuple(f"f{number}.parquet" for number in range(6))


# --- no threads, no pauses --------------------------------------------------------------------------------------------


class _Inline:
    """An executor that does the work where it is submitted."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - as an executor has it
            future.set_exception(error)
        return future

    def shutdown(self, **_: bool) -> None: ...


@contextmanager
def single_threaded() -> Iterator[None]:
    """All work happens in the greenlet that asks for it, and losers of a race try again at once.

    Equal bytes of a version are parsed once, which takes a tenth off the time.
    """
    with ExitStack() as stack:
        stack.enter_context(patch("zonebloom.ground.threads.ThreadPoolExecutor", _Inline))
        stack.enter_context(patch("zonebloom.ground.attempts._LONGEST_PAUSE", 0))
        stack.enter_context(patch("zonebloom.storage.manifest._parsed", lru_cache(256)(_parsed)))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


# --- where a run starts -----------------------------------------------------------------------------------------------


def opened(store: MemoryStore, lake: MemoryLake) -> Index:
    return Index(load_snapshot(store, None), lake)


def make(store: MemoryStore, lake: MemoryLake, column: str, kind: Kind = "bloom") -> None:
    options = IndexOptions(rows_per_zone=2, fpp=0.0001, kind=kind)
    build(lake, store, column, options, BuildOptions(workers=1))


def _started(kind: Kind = "bloom") -> tuple[Objects, MemoryStore, MemoryLake]:
    objects = Objects()
    store, lake = MemoryStore(objects), MemoryLake(objects.files)
    for path in PATHS[:3]:
        objects.files.write(path)
    make(store, lake, "k", kind)
    return objects, store, lake


_KINDS: dict[str, Kind] = {"located": "locator", "twice": "both"}


@cache
def base(name: str) -> Objects:
    """An index to start from."""
    if name == "none":
        objects = Objects()
        for path in PATHS[:3]:
            objects.files.write(path)
        return objects
    objects, store, lake = _started(_KINDS.get(name, "bloom"))
    if name != "young":  # several lists and segments, dead fragments, a second column, a file that is not known
        objects.files.write(PATHS[3])
        opened(store, lake).refresh(workers=1)
        objects.files.write(PATHS[0])
        opened(store, lake).refresh(workers=1)
        make(store, lake, "s")
        objects.files.delete(PATHS[1])
        opened(store, lake).refresh(workers=1)
        objects.files.write(PATHS[4])
    return objects


BASES = ("none", "young", "young", "grown", "grown", "grown", "located", "twice")


# --- what actors do ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Actor:
    """One process: its name, its handles and what it does."""

    name: str
    works: list[str]
    world: World
    chance: random.Random
    body: greenlet = field(init=False)
    num_steps: int = 0
    dies_after: int = 1 << 30
    fault: tuple[int, str] = (-1, "")
    """Which of its creations fails, and how."""
    num_creations: int = 0
    is_dead: bool = False
    outcomes: list[str] = field(default_factory=list)

    def step(self, what: str) -> str:
        """Let others go first; then what fails, if anything does."""
        world = self.world
        if self.is_dead or getcurrent() is not self.body:
            raise GreenletExit
        world.hub.switch()
        if self.is_dead:
            raise GreenletExit
        self.num_steps += 1
        world.trace.append((self.name, what))
        if not what.startswith("create"):
            return ""
        self.num_creations += 1
        return self.fault[1] if self.fault[0] == self.num_creations else ""

    def run(self) -> None:
        """All its works, one after the other."""
        store, lake = MemoryStore(self.world.objects, self.step), MemoryLake(self.world.objects.files, self.step)
        for work in self.works:
            try:
                self.outcomes.append(f"{work}: {self._do(work, store, lake)}")
            except errors.ZoneBloomError as error:
                if not (self.fault[1] or self.world.may_fail(error)):
                    raise
                self.outcomes.append(f"{work}: {type(error).__name__}")

    def _do(self, work: str, store: MemoryStore, lake: MemoryLake) -> str:
        files = self.world.objects.files
        match work.split():
            case ["write", path]:
                self.step(work)
                files.write(path)
            case ["delete", path]:
                self.step(work)
                files.delete(path)
            case ["build", column]:
                make(store, lake, column)
            case ["rebuild", column]:
                options = IndexOptions(rows_per_zone=3, fpp=0.0001)
                build(lake, store, column, options, BuildOptions(workers=1), overwrite=True)
            case ["search"]:
                search_all(opened(store, lake))
            case ["search", "twice"]:
                index = opened(store, lake)
                search_all(index)
                search_all(index)
            case ["optimize"]:
                return self._acknowledged(store, lake, lambda index: index.optimize())
            case ["vacuum"]:
                older_than = timedelta(0) if self.world.is_reckless else timedelta(hours=1)
                opened(store, lake).vacuum(older_than=older_than)
            case ["restore"]:
                numbers = list_versions(store)
                return self._acknowledged(store, lake, lambda index: index.restore(self.chance.choice(numbers)))
            case ["refresh", *rest]:
                options: dict[str, Any] = {"mode": "incremental", "workers": 1}
                for action in rest:
                    options |= {"paths": [action]} if action in PATHS else _REFRESHES[action]
                return self._acknowledged(store, lake, lambda index: index.refresh(**options))
        return "done"

    def _acknowledged(self, store: MemoryStore, lake: MemoryLake, work: Callable[[Index], Any]) -> str:
        index = opened(store, lake)
        work(index)
        self.world.acknowledged.append((self.name, index.version))
        return "done"


_REFRESHES: dict[str, dict[str, Any]] = {
    "full": {"mode": "full"},
    "quick": {"mode": "quick"},
    "steps": {"commit_every": 4},
    "check": {"check": True},
}
WRITER_WORKS = (
    *("refresh",) * 5,
    *(f"refresh {path}" for path in PATHS),
    *("refresh steps", "refresh full", "refresh quick", "refresh check"),
    *("optimize",) * 4,
    *("restore", "restore", "vacuum", "vacuum", "build s", "rebuild k"),
)


def search_all(index: Index) -> None:
    """Every row of the listing is kept by a search for a key of each zone, by all columns at once."""
    view = index.view()
    keys = [10 * value.mtime_ns + row for value in view.listing.values() for row in (0, ROWS_OF_A_FILE - 1)]
    values = {"k": keys, "s": [f"text {key}" for key in keys]}
    row_ranges = Query(view, And(tuple(zb.IsIn(column, values[column]) for column in index.columns))).result.row_ranges
    if row_ranges != view.files.rows():
        is_known = {path: not view.files.is_unknown(path) for path in view.listing}
        message = f"version {index.version} must keep {view.files.rows()} of {view.listing}"
        raise FindingError(f"{message}, got {row_ranges}; known: {is_known}")


# --- who goes first ---------------------------------------------------------------------------------------------------


class World:
    """One run: actors over one store, scheduled by one seed."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.objects = base(chance.choice(BASES)).copied()
        self.hub = getcurrent()
        self.trace: list[tuple[str, str]] = []
        self.acknowledged: list[tuple[str, int]] = []
        works = [
            [chance.choice(WRITER_WORKS) for _ in range(chance.choice((1, 1, 2)))] for _ in range(chance.choice((2, 3)))
        ]
        if not self.objects.journal:
            works = [["build k", *work] for work in works]
        self.is_reckless = any("vacuum" in work for work in works) and chance.random() < 0.3
        self.actors = [self._actor(f"w{number}", work) for number, work in enumerate(works)]
        self.actors.append(self._actor("reader", [chance.choice(("search", "search twice")) for _ in range(2)]))
        changes = range(chance.choice((0, 1, 2, 3)))
        owned = [f"{chance.choice(('write', 'write', 'delete'))} {chance.choice(PATHS)}" for _ in changes]
        self.actors.append(self._actor("owner", owned))
        acting = self.actors[: len(works)]
        self.num_killed = chance.choice((0, 0, 0, 1, 2))
        for victim in chance.sample(acting, self.num_killed):
            victim.dies_after = int(chance.triangular(1, 60, 15))
        if chance.random() < 0.25:
            victim = chance.choice(acting)
            victim.fault = (chance.choice((1, 2, 2, 3)), chance.choice(("lost", "twice", "twice", "refused")))
        self.is_even = chance.random() < 0.4
        self.changes = {chance.randrange(120) for _ in range(chance.choice((1, 2, 3, 5)))}

    def _actor(self, name: str, works: list[str]) -> Actor:
        actor = Actor(name, works, self, random.Random(self.chance.random()))
        actor.body = greenlet(actor.run)
        return actor

    def may_fail(self, error: errors.ZoneBloomError) -> bool:
        """Whether a writer may get the store's correct answer."""
        if isinstance(error, errors.ConcurrentCommitError) or self.is_reckless:
            return True
        text = str(error)
        return (
            (isinstance(error, errors.InvalidArgumentError) and "no version " in text)
            or (isinstance(error, errors.IndexExistsError) and "already indexed" in text)
            or isinstance(error, errors.IndexNotFoundError | errors.DataFileError)
            or (isinstance(error, errors.CorruptIndexError) and self.is_past_removed)
        )

    @property
    def is_past_removed(self) -> bool:
        """Whether a vacuum may take a version for expired that a restore makes current: refresh.md#vacuum."""
        works = {work for actor in self.actors for work in actor.works}
        return {"vacuum", "restore"} <= works

    def run(self) -> None:
        """To the end of all actors; then what must hold afterwards."""
        alive = list(self.actors)
        self.chance.shuffle(alive)
        number = 0
        try:
            while alive:
                place = self.chance.randrange(len(alive)) if self.is_even else 0
                if number in self.changes and not self.is_even:
                    alive.append(alive.pop(0))
                number += 1
                actor = alive[place]
                if actor.num_steps >= actor.dies_after:
                    alive.remove(actor)
                    continue
                actor.body.switch()
                if actor.body.dead:
                    alive.remove(actor)
        finally:
            for actor in self.actors:
                actor.is_dead = True
                if actor.body and not actor.body.dead:
                    actor.body.throw(GreenletExit)
        self._check_history()
        self._check_end()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @cached_property
    def history(self) -> list[_Version]:
        """All versions in the order in which they were created."""
        everything = MemoryStore(Objects({path: (data, 0.0) for path, data, _ in self.objects.journal}))
        commits = [entry for entry in self.objects.journal if entry[0].startswith("versions/")]
        return [_Version.of(everything, *entry) for entry in commits]

    def _check_history(self) -> None:
        names: dict[int, tuple[str, int]] = {}
        for past in self.history:
            for fragment_id, name in past.live.items():
                if names.setdefault(fragment_id, name) != name:
                    raise FindingError(f"id {fragment_id} must name one file, got {names[fragment_id]} and {name}")
            for column, covered in past.covered.items():
                twice = [fragment_id for fragment_id in past.live if covered[fragment_id] > 1]
                if twice:
                    raise FindingError(f"{past} must have zones once, got {twice} of {column} twice")
        if self.is_reckless:
            return
        revived: set[int] = set()
        for before, after in zip(self.history, self.history[1:], strict=False):
            if after.manifest.version != before.manifest.version + 1:
                raise FindingError(f"{after} must follow {before}")
            if after.manifest.operation == "restore":
                if not any(after.live == past.live and after.covered == past.covered for past in self.history):
                    raise FindingError(f"{after} must have the content of an older one")
                revived |= after.live.keys() - before.live.keys()
                continue
            self._check_change(before, after, revived)
        numbers = {version.manifest.version for version in self.history}
        for name, version in self.acknowledged:
            if version not in numbers:
                raise FindingError(f"{name} was told of version {version}, got {sorted(numbers)}")

    def _check_change(self, before: _Version, after: _Version, revived: set[int]) -> None:
        """Refuse that parts of `before` are missing in `after`, except those that refresh.md excuses.

        `revived` are fragments that a restore made live again.
        """
        has_all_lists = all(entry.path in self.objects.present for entry in before.manifest.fragment_lists)
        for fragment_id, (path, number) in before.live.items():
            is_changed = after.files.get(path) != number
            if fragment_id not in after.live:
                is_made_anew = (path, number) in after.live.values()
                if not (is_changed or is_made_anew or (self.is_past_removed and not has_all_lists)):
                    raise FindingError(f"{after} must have {path} as {before} has it, got {after.live}")
                continue
            for column, covered in before.covered.items():
                is_lost = covered[fragment_id] and not after.covered[column][fragment_id]
                is_excused = after.is_rebuilt(before, column) or (is_changed and fragment_id in revived)
                if is_lost and not is_excused:
                    raise FindingError(f"{after} must have zones of {path} by {column} as {before} has them")

    def _check_end(self) -> None:
        store, lake = MemoryStore(self.objects), MemoryLake(self.objects.files)
        if not list_versions(store):
            return
        index = opened(store, lake)
        search_all(index)
        if not lake.files.present:
            return
        index.refresh(workers=1)
        search_all(index)
        view = index.view()
        if view.files.unknown_paths:
            raise FindingError(f"a refresh must make all files known, got {view.files.unknown_paths}")
        key = 10 * next(iter(view.listing.values())).mtime_ns
        for column, value in (("k", key), ("s", f"text {key}")):
            if column in index.columns:
                result = Query(view, zb.Equals(column, value)).result
                if result.reasons or result.row_ranges.num_rows > ROWS_OF_A_FILE:
                    raise FindingError(f"a refresh must make all zones, got {result.reasons}, {result.row_ranges}")


@dataclass(frozen=True, slots=True)
class _Version:
    """What one version says."""

    manifest: Manifest
    live: dict[int, tuple[str, int]]
    """By id, path and number of the file's version."""
    covered: dict[str, Counter[int]]
    """By column, how many segments of one kind have zones of a fragment."""
    files: dict[str, int]
    """The lake when it was committed."""

    @classmethod
    def of(cls, store: MemoryStore, path: str, data: bytes, files: dict[str, int]) -> _Version:
        """The version whose file holds `data`; those of a base are read once."""
        if data not in _KNOWN:
            store.objects.present[path] = data, 0.0  # after a vacuum a number may be used again
            _KNOWN[data] = cls._read(store, int(path[9:29]), files)
        return _KNOWN[data]

    @classmethod
    def _read(cls, store: MemoryStore, number: int, files: dict[str, int]) -> _Version:
        manifest = read_version(store, number)
        live = {}
        for entry in manifest.fragment_lists:
            if entry.path in store.objects.present:
                table = read_fragments(store, entry)
                ids, paths, times = table.fragment_ids.tolist(), table.paths.tolist(), table.mtimes.tolist()
                live |= {fragment: (path, number) for fragment, path, number in zip(ids, paths, times, strict=True)}
        for start, stop in manifest.dropped:
            for row in range(start, stop):
                live.pop(row, None)
        covered = {}
        for column in manifest.columns:
            counts = [Counter[int](), Counter[int]()]  # by filters, and by locators: a fragment may have both
            for segment in column.segments:
                counts[segment.kind == "locator"].update(number for run in segment.fragments for number in range(*run))
            covered[column.name] = counts[0] | counts[1]
        return cls(manifest, live, covered, files)

    def is_rebuilt(self, before: _Version, column: str) -> bool:
        """Whether the column has nothing of what it was."""
        mine, other = self.manifest.column(column), before.manifest.column(column)
        return mine is None or other is None or not {*mine.files} & {*other.files}

    def __str__(self) -> str:
        return f"version {self.manifest.version} ({self.manifest.operation})"


_KNOWN: dict[bytes, _Version] = {}


# --- runs -------------------------------------------------------------------------------------------------------------


def run_one(seed: int) -> World:
    """One interleaving; raises what breaks a promise."""
    if seed % 1000 == 0:
        _KNOWN.clear()
    world = World(seed)
    try:
        world.run()
    except BaseException as error:
        actors = [(actor.name, actor.works, actor.outcomes, actor.fault, actor.dies_after) for actor in world.actors]
        steps = "\n".join(f"  {name:8} {what}" for name, what in world.trace)
        error.add_note(f"seed {seed}: {actors}\n{steps}")
        raise
    return world


def run(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """How many works ended how, and the findings."""
    ended: Counter[str] = Counter()
    findings: list[str] = []
    with single_threaded():
        for seed in range(first, first + count):
            try:
                world = run_one(seed)
            except Exception:  # noqa: BLE001 - what is not ours is a finding
                findings.append(traceback.format_exc())
                continue
            ended["interleavings"] += 1
            ended["operations"] += len(world.trace)
            ended["killed"] += world.num_killed
            ended["versions"] += len(world.history)
    return ended, findings


def run_as_child(_folder: Path, first: int, count: int, _options: list[str]) -> None:
    with single_threaded():
        for seed in range(5):  # warm
            run_one(seed)
        run_child(first, count, lambda seed: f"{len(run_one(seed).history):2} versions")


if __name__ == "__main__":
    main("tests.fuzz.interleavings", run_as_child)
