"""What both adapters take from their caller or the environment, checked before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from agentkit.core.contracts.errors import InvalidSpec, MissingExtra, MissingKey
from agentkit.core.contracts.types import JSON
from agentkit.models.providers._json import dump

__all__ = [
    "Secret",
    "api_key",
    "base_url",
    "extra_body",
    "missing_extra",
    "require_sdk",
    "seconds",
    "shown_url",
]


class Secret:
    """A text that does not show when its holder is printed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("an API key is not to be copied into stored bytes")


def api_key(given: str | None, *, variable: str, builder: str) -> Secret:
    """The key that was given, or the environment's.

    Raises:
        MissingKey: there is none.
        InvalidSpec: it cannot stand in a header.
    """
    source = "the api_key given" if given is not None else variable
    key = (given if given is not None else os.environ.get(variable, "")).strip()
    if not key:
        raise MissingKey(
            f"No API key for {builder}(): give api_key=… or set the environment variable "
            f"{variable}. A server that needs no key takes any text."
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidSpec(
            f"{source} holds characters that no API key has (spaces, line ends, or letters outside "
            "ASCII); copy it again."
        )
    return Secret(key)


def base_url(given: str | None, *, variable: str, default: str) -> str:
    """The base URL that was given, or the environment's, or the provider's own.

    Raises:
        InvalidSpec: it is no http or https URL.
    """
    url = (given if given is not None else os.environ.get(variable, "")).strip() or default
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidSpec(
            "The base URL is not usable: it must start with http:// or https:// and name a host "
            f"(from base_url=… or {variable})."
        )
    return url


def shown_url(url: str) -> str:
    """The URL without user, password, query and fragment."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def extra_body(given: Mapping[str, JSON] | None, *, ours: Collection[str]) -> dict[str, JSON]:
    """Further fields for the body, checked.

    Raises:
        InvalidSpec: a field is one that we set, or the value is not JSON.
    """
    fields = dict(given or {})
    if taken := sorted(set(fields) & set(ours)):
        raise InvalidSpec(f"extra_body may not set {', '.join(taken)}: agentkit sets it itself")
    try:
        dump(fields)
    except TypeError as exc:
        raise InvalidSpec(f"extra_body is not JSON: {exc}") from exc
    return fields


def seconds(value: float, *, name: str) -> float:
    """A limit in seconds, checked.

    Raises:
        InvalidSpec: it is not a positive number.
    """
    if not 0 < value < float("inf"):
        raise InvalidSpec(f"{name} is {value!r}; give a positive number of seconds")
    return value


def require_sdk(module: str) -> None:
    """Check that an SDK is installed, without loading it.

    Raises:
        MissingExtra: it is not.
    """
    if find_spec(module) is None:
        raise missing_extra(module)


def missing_extra(module: str) -> MissingExtra:
    """The error for an SDK that cannot be imported."""
    return MissingExtra(
        f'The {module} SDK is not installed. Install it with: pip install "arc-agentkit[{module}]"'
    )
