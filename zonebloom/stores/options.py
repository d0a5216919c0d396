"""One `storage_options` dict → a client of an object store; credentials are searched before the first request.

Keys are those of the object_store library, in any case, with or without their prefix (`aws_region`, `AWS_REGION`,
`region`). Environment variables of the same names are used for options that are not given. One dict may have keys for
several stores: each store uses its own.

Spec: specs/index-format.md#storage-options
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonebloom.ground.errors import InvalidArgumentError, MissingDependencyError, StorageError
from zonebloom.stores.locations import StorageOptions, Url

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

_PREFIXES = {"s3": ("aws_",), "gcs": ("google_",), "azure": ("azure_storage_", "azure_")}
_CLIENT_KEYS = re.compile(
    "allow_http|allow_invalid_certificates|http[12]_only|pool_idle_timeout|pool_max_idle_per_host|proxy_ca_certificate"
    "|proxy_excludes|proxy_url|(connect_|read_)?timeout|root_certificate|user_agent"
)
_CREDENTIALS = {
    "s3": re.compile(
        "access_key_id|container_credentials_(full|relative)_uri|metadata_endpoint|skip_signature"
        "|web_identity_token_file"
    ),
    "gcs": re.compile("(application_)?credentials|bearer_token|service_account(_key|_path)?|skip_signature"),
    "azure": re.compile(
        "(access|account|master|sas)_key|(bearer_|sas_)?token|client_secret|connection_string|fabric_token_service_url"
        "|federated_token_file|(identity|msi)_endpoint|skip_signature|use_azure_cli|use_emulator"
    ),
}
"""Options that give credentials; without any of them only the machine's metadata service can give some."""
_OF_DELTALAKE = re.compile(
    r"backoff_config\..+|max_elapsed_request_time|max_retries|retry_timeout|(object_store_)?concurrency_limit"
    r"|.*allow_unsafe_rename|(s3_)?locking_provider|.*dynamo.*|.*pool_idle_timeout_seconds"
    "|s3_get_internal_server_error_retries"
)
"""Options of deltalake alone, for its own requests and for writing its log; the same files are read without them."""
_METADATA_SERVICE = ("169.254.169.254", 80)
_METADATA_SECONDS = 1.0
_HOW = {
    "s3": "give aws_access_key_id and aws_secret_access_key in storage_options or the environment "
    "(`aws configure export-credentials --format env` prints those of a profile), "
    "or aws_skip_signature=true for a public bucket",
    "gcs": "give google_service_account (a key file) in storage_options or the environment, run "
    "`gcloud auth application-default login`, or give google_skip_signature=true for a public bucket",
    "azure": "give azure_storage_account_name and azure_storage_account_key (or azure_storage_sas_key) in "
    "storage_options or the environment, or azure_use_azure_cli=true",
}


def environment_of(provider: str) -> dict[str, str]:
    """The environment's variables that a store of `provider` reads."""
    prefixes = tuple(prefix.upper() for prefix in _PREFIXES[provider])
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def connect(url: Url, options: StorageOptions, retry: Mapping[str, Any]) -> S3Store | GCSStore | AzureStore:
    """A client of the bucket of `url`; no request is made.

    Raises
    ------
    InvalidArgumentError
        An option does not exist, or does not fit the others.
    MissingDependencyError
        obstore is not installed.
    """
    try:
        import obstore.exceptions  # noqa: PLC0415 - an optional dependency
        import obstore.store  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingDependencyError(
            f"obstore must be installed to use {url.root}", got="none", do=f'pip install "zonebloom[{url.provider}]"'
        ) from error
    config, client = _split(url.provider, options)
    client_of: Any = getattr(obstore.store, {"s3": "S3Store", "gcs": "GCSStore", "azure": "AzureStore"}[url.provider])
    try:
        store: Any = client_of.from_url(url.root, config=config, client_options=client, retry_config=retry)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
        text = str(error).split("\n", 1)[0]
        raise InvalidArgumentError(
            f"storage_options must fit {url.root}", got=text, do="give options of the object_store library"
        ) from error
    return store  # type: ignore[no-any-return] # one of the three


def _split(provider: str, options: StorageOptions) -> tuple[dict[str, str], dict[str, Any]]:
    """The options of the store, and those of its HTTP client; options of other stores and of deltalake are left out."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    others = tuple(prefix for name, prefixes in _PREFIXES.items() if name != provider for prefix in prefixes)
    for name, value in environment_of(provider).items():  # obstore itself reads the others
        if _CLIENT_KEYS.fullmatch(plain_option(provider, name)):
            client[plain_option(provider, name)] = value
    for name, value in options.items():
        plain = plain_option(provider, name)
        if _CLIENT_KEYS.fullmatch(plain):
            client[plain] = value
        elif not (name.lower().startswith(others) or _OF_DELTALAKE.fullmatch(plain)):
            config[name.lower()] = value
    return config, {"timeout": timedelta(seconds=60)} | client


def plain_option(provider: str, name: str) -> str:
    """The name of an option without the prefix of its store."""
    name = name.lower()
    for prefix in _PREFIXES[provider]:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def check_credentials(url: Url, options: StorageOptions) -> None:
    """Raise at once if there are no credentials, instead of waiting minutes for a metadata service.

    Raises
    ------
    StorageError
        No credentials are given, and the machine has no metadata service.
    """
    provider = url.provider
    given = [*options, *environment_of(provider)]
    if any(_CREDENTIALS[provider].fullmatch(plain_option(provider, name)) for name in given):
        return
    if provider == "gcs" and Path("~/.config/gcloud/application_default_credentials.json").expanduser().exists():
        return
    is_off = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true" and provider == "s3"
    if is_off or not _has_metadata_service():
        raise StorageError(
            f"credentials must be given to use {url.root}",
            got="none, and this machine has no metadata service",
            do=_HOW[provider],
        )


def _has_metadata_service() -> bool:
    try:
        socket.create_connection(_METADATA_SERVICE, timeout=_METADATA_SECONDS).close()
    except OSError:
        return False
    return True
