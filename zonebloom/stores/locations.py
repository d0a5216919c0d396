"""Locations of an index or a data set, as a user writes them: a local path, a `file:` URL, or the URL of a store.

- A **location** is one text: an absolute local path, or `<scheme>://<bucket>/<key>` without a slash at its end.
- The key of a URL is taken literally: `%20` in it is three characters, a space is a space.

Spec: specs/index-format.md#locations
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from zonebloom.ground.errors import InvalidArgumentError

StorageOptions = Mapping[str, str]
"""A user's options of stores: names and values, all texts."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_IN_NO_NAME = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
"""What no file's name has. Half a surrogate pair of the rest is a byte that is no UTF-8."""
_PROVIDERS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), "azure"),
}
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}
"""Other schemes for the same objects, and their usual names."""


@dataclass(frozen=True, slots=True)
class Url:
    """The URL of a folder or an object in an object store.

    - `key` neither begins nor ends with a slash, and has no empty part, no `.` and no `..`.
    """

    scheme: str
    """`s3`, `gs`, `az`, `abfs` or `abfss`."""
    bucket: str
    """Bucket or container; for `abfss` with the account's host."""
    key: str
    """The rest, literally; empty for the whole bucket."""

    @property
    def provider(self) -> str:
        """The provider: `s3`, `gcs` or `azure`."""
        return _PROVIDERS[self.scheme]

    @property
    def root(self) -> str:
        """The URL of the bucket."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def location(self) -> str:
        """The whole URL as one text."""
        return f"{self.root}/{self.key}" if self.key else self.root

    @property
    def folders_above(self) -> list[str]:
        """The URLs of the bucket and of all folders around this one, the bucket first."""
        names = self.key.split("/") if self.key else []
        return ["/".join([self.root, *names[:number]]) for number in range(len(names))]

    def key_of(self, path: str) -> str:
        """The key of the object at `path` below this URL; of the folder itself for an empty path."""
        return f"{self.key}/{path}" if self.key and path else path or self.key

    def path_of(self, key: str) -> str:
        """The path below this URL of the object at `key`."""
        return key[len(self.key) + 1 :] if self.key else key

    @classmethod
    def parse(cls, text: str) -> Url:
        """The parts of a URL.

        Raises
        ------
        InvalidArgumentError
            The URL is of another kind, has no bucket, or has a key that no file can have.
        """
        match = _SCHEME.match(text)
        scheme = match[1].lower() if match else ""
        if match is None or scheme not in _PROVIDERS:
            schemes = ", ".join(f"{name}://" for name in _PROVIDERS)
            raise InvalidArgumentError(
                f"{text} is of no known kind", do=f"give a local path, file:// or one of {schemes}"
            )
        bucket, _, key = text[match.end() :].partition("/")
        key = key.rstrip("/")
        parts = key.split("/") if key else []
        if not bucket or "\0" in text or any(part in ("", ".", "..") for part in parts):
            raise InvalidArgumentError(
                "a location must have a bucket, and a key without empty parts, '.' and '..'", got=f"{text!r}"
            )
        return cls(_SAME_STORE.get(scheme, scheme), bucket, key)


def check_options(options: StorageOptions | None) -> None:
    """Check that `options` is None, or a dict of texts. Messages never show values.

    Raises
    ------
    InvalidArgumentError
        The options are not a dict of texts.
    """
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgumentError("storage_options must be a dict of texts", got=type(options).__name__)
    for name, value in (options or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                "storage_options must be texts",
                got=f"{name!r} with a value of type {type(value).__name__}",
                do='write "true", "30s" and the like',
            )


def is_url(location: str) -> bool:
    """Whether `location` is in an object store, not on this machine."""
    return _SCHEME.match(location) is not None


def absolute(path: str | os.PathLike[str]) -> str:
    """`path` as a location: a normal URL, or an absolute local path without dots; only links before `..` are resolved.

    Raises
    ------
    InvalidArgumentError
        No file can have such a path.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or _IN_NO_NAME.search(text):
        must = "a path must be a text without NUL and half surrogate pairs, and not empty"
        raise InvalidArgumentError(must, got=f"{text!r:.80}")
    if text[:5].lower() == "file:":
        text = _path_of_file_url(text)
    elif is_url(text):
        return Url.parse(text).location
    names = text.split("/")
    if ".." in names:  # the folder above the one to which a link before it leads, as for the system
        last = len(names) - names[::-1].index("..")
        text = os.path.join(os.path.realpath("/".join(names[:last])), *names[last:])  # noqa: PTH118 - text
    return os.path.abspath(text)  # noqa: PTH100 - resolve() would follow links out of the root


def _path_of_file_url(text: str) -> str:
    """`file:///a%20b`, `file:/a%20b` and `file://localhost/a%20b` are all `/a b`."""
    rest = text[5:]
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidArgumentError("a file: URL must be of this machine", got=text)
        rest = "/" + path
    if not rest.startswith("/"):
        raise InvalidArgumentError("a file: URL must have an absolute path", got=text)
    return unquote(rest)


def joined(location: str, path: str) -> str:
    """The location of `path` below `location`."""
    return f"{location}/{path}" if is_url(location) else os.path.join(location, path)  # noqa: PTH118 - plain strings
