"""Who may ask what: key, version, model, readable JSON, and then the rules of the API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agentkit.testing.provider import anthropic_rules, openai_rules
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.script import Api
from agentkit.testing.provider.shapes import BadJson, Body, parse, text

__all__ = ["API_PATHS", "MAX_BODY_BYTES", "Gate"]

API_PATHS: dict[str, Api] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai",
    "/chat/completions": "openai",
}
MAX_BODY_BYTES = 32 * 1024 * 1024
"""The limit that the Messages API documents for a request."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides whether a request may be answered.

    Args:
        api_key: the one valid key.
        models: the known models; None knows every name.
    """

    api_key: str
    models: Collection[str] | None = None

    def admit(
        self, api: Api, headers: Mapping[str, str], raw: bytes
    ) -> tuple[Body, Refusal | None]:
        """Return the parsed request, as far as it is readable, and the refusal if there is one.

        Args:
            api: which API was addressed.
            headers: of the request, with lower-case names.
            raw: its body.
        """
        denied = self._deny(api, headers)
        if denied is not None:
            return {}, denied
        try:
            body = parse(raw)
        except BadJson as error:
            return {}, _unreadable(api, str(error))
        if not isinstance(body, dict):
            return {}, _unreadable(api, "expected an object")
        check = anthropic_rules.check if api == "anthropic" else openai_rules.check
        return body, self._unknown_model(api, text(body.get("model"))) or check(body)

    def _deny(self, api: Api, headers: Mapping[str, str]) -> Refusal | None:
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if api == "openai":
            return None if bearer == self.api_key else _openai_denial(bearer)
        given = headers.get("x-api-key") or bearer
        if not given:
            return Refusal("no_key", "x-api-key header is required", 401, "authentication_error")
        if given != self.api_key:
            return Refusal("bad_key", "invalid x-api-key", 401, "authentication_error")
        if not headers.get("anthropic-version"):
            return Refusal("no_version", "anthropic-version: header is required")
        return None

    def _unknown_model(self, api: Api, model: str) -> Refusal | None:
        if self.models is None or not model or model in self.models:
            return None
        if api == "anthropic":
            return Refusal("unknown_model", f"model: {model}", 404, "not_found_error")
        return Refusal(
            "unknown_model",
            f"The model `{model}` does not exist or you do not have access to it.",
            404,
            code="model_not_found",
        )


def _openai_denial(given: str) -> Refusal:
    if not given:
        return Refusal(
            "no_key",
            "You didn't provide an API key. You need to provide your API key in an Authorization "
            "header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            401,
        )
    return Refusal(
        "bad_key",
        "Incorrect API key provided. You can find your API key at "
        "https://platform.openai.com/account/api-keys.",
        401,
        code="invalid_api_key",
    )


def _unreadable(api: Api, why: str) -> Refusal:
    if api == "anthropic":
        return Refusal("bad_json", f"The request body is not valid JSON: {why}")
    return Refusal(
        "bad_json",
        "We could not parse the JSON body of your request. (HINT: This likely means you aren't "
        f"using your HTTP library correctly. The API expects a JSON payload.) {why}",
    )
