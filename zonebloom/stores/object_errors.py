"""Errors of obstore, as what the user of an object store must do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from zonebloom.ground.errors import StorageError
from zonebloom.stores.locations import Url

UNREACHABLE: re.Pattern[str] = re.compile(
    r"error sending request|dns error|connection refused|tcp connect|timed out", re.IGNORECASE
)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified (bucket|container) does not exist")
_REFUSED = re.compile(r"status code: 40[13]|lacks the permissions|Unauthenticated|InvalidAccessKeyId")
_WRONG_REGION = re.compile(r"redirect|AuthorizationHeaderMalformed|IllegalLocationConstraint", re.IGNORECASE)
"""Parts of the messages of obstore 0.12: no answer, no bucket, no right to it, and another region."""


class ChangedObjectError(Exception):
    """An object is no longer the version that was requested."""


@contextlib.contextmanager
def explaining(url: Url, verb: str, key: str) -> Iterator[None]:
    """Raise obstore's errors in the block as ours; messages never have a URL's query, which may be a secret."""
    import obstore.exceptions as theirs  # noqa: PLC0415 - an optional dependency, which the caller uses

    place = f"{url.root}/{key}" if key else url.root
    try:
        yield
    except theirs.PreconditionError as error:
        raise ChangedObjectError(key) from error
    except theirs.AlreadyExistsError as error:
        raise FileExistsError(place) from error
    except (theirs.BaseError, OSError, ValueError) as error:
        text = str(error)
        if _NO_BUCKET.search(text):
            raise StorageError(
                f"bucket {url.root} must exist to {verb} {key or 'it'}",
                got="no such bucket",
                do="create it, or check its name and the region and endpoint",
            ) from error
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"{place} does not exist") from error
        raise StorageError(f"cannot {verb} {place}: {_why(url, text)}") from error


def _why(url: Url, text: str) -> str:
    plain = re.sub(r"\?\S*", "", text.split("\n", 1)[0])
    if _REFUSED.search(text):
        return f"access was refused; check the credentials and what they permit ({plain[:300]})"
    if "builder error" in text or "URL scheme is not allowed" in text:
        return "a plain http:// endpoint must be allowed; give allow_http=true in storage_options"
    if "object with invalid path" in text:
        return f"each key must have no empty part, '.', '..' or control character; rename or remove it ({plain[:500]})"
    if UNREACHABLE.search(text):
        return f"no answer; check the endpoint and the network ({plain[:300]})"
    if _WRONG_REGION.search(text) and url.provider == "s3":
        return f"the bucket seems to be in another region; give aws_region in storage_options ({plain[:300]})"
    return plain[:500]
