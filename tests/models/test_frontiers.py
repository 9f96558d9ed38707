"""Building a provider: what it needs, what it refuses, what it loads, and that it hides its key."""

import asyncio
import copy
import gc
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from agentkit.core.contracts.errors import InvalidSpec, MissingExtra, MissingKey
from agentkit.core.contracts.model import LLMPort
from agentkit.models.providers import _clients, _settings, frontiers
from agentkit.testing.provider import Answer, StrictProvider
from tests.models.kit import KEY, PROVIDERS, answer_of, ask, events_of, message, port, request
from tests.models.raw_server import END, PAUSE, chunk, event, head, serving, whole

BUILDERS: dict[str, Callable[..., LLMPort]] = {
    "anthropic": frontiers.claude,
    "openai": frontiers.openai,
}
VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
URLS = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*VARIABLES.values(), *URLS.values()):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("key", [None, "", " \n"])
def test_a_missing_key_is_told_in_one_paragraph(name: str, key: str | None) -> None:
    """The message says which argument and which variable, before anything is sent."""
    with pytest.raises(MissingKey, match=VARIABLES[name]) as caught:
        BUILDERS[name](api_key=key)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_key_and_url_come_from_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not given is read from the environment when the provider is built."""
    async with serving(whole(answer_of(name))) as server:
        monkeypatch.setenv(VARIABLES[name], f"{KEY}\n")
        monkeypatch.setenv(URLS[name], f"{server.url}/prefix")
        llm = BUILDERS[name]()
        monkeypatch.delenv(VARIABLES[name])
        monkeypatch.delenv(URLS[name])
        await ask(llm, request())

    assert KEY in server.received[0].headers["authorization"]
    assert server.received[0].path.startswith("/prefix/")


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_missing_sdk_is_told_when_the_provider_is_built(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is the command to run."""
    monkeypatch.setattr(_settings, "find_spec", lambda module: None)
    with pytest.raises(MissingExtra) as caught:
        BUILDERS[name](api_key=KEY)

    assert f'pip install "arc-agentkit[{name}]"' in str(caught.value)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_sdk_that_does_not_import_is_told_as_well(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-removed SDK gives the same message at the first attempt."""
    llm = BUILDERS[name](api_key=KEY)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match="pip install"):
        await anext(aiter(llm.attempt(request())))


def test_importing_and_building_load_no_sdk() -> None:
    """The door is cheap: neither importing nor building loads an SDK or an HTTP library."""
    program = (
        "import json, sys\n"
        "from agentkit.models.providers import frontiers\n"
        "frontiers.claude(api_key='k')\n"
        "frontiers.openai(api_key='k')\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )

    assert set() == set(json.loads(done.stdout)) & {"anthropic", "openai", "httpx2", "pydantic"}


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"api_key": "sk one"},
        {"api_key": "sk-ключ"},
        {"api_key": "sk\none"},
        {"base_url": "api.example.org"},
        {"base_url": "ftp://example.org"},
        {"base_url": "http://"},
        {"base_url": "http://example.org:port"},
        {"stall_seconds": 0},
        {"connect_seconds": float("inf")},
        {"extra_body": {"messages": []}},
        {"extra_body": {"x": object()}},
    ],
)
def test_settings_out_of_range_are_refused(name: str, wrong: dict[str, object]) -> None:
    """A setting that cannot work is an error when it is written down, and no key is shown."""
    settings = {"api_key": KEY, **wrong}
    with pytest.raises(InvalidSpec) as caught:
        BUILDERS[name](**settings)

    assert str(settings["api_key"]) not in str(caught.value)


def test_settings_of_one_provider_out_of_range_are_refused() -> None:
    """An empty answer and an empty origin make no sense."""
    with pytest.raises(InvalidSpec, match="max_tokens"):
        frontiers.claude(api_key=KEY, max_tokens=0)
    with pytest.raises(InvalidSpec, match="origin"):
        frontiers.openai(api_key=KEY, origin="")


@pytest.mark.parametrize("name", PROVIDERS)
def test_f118_the_key_does_not_show(name: str) -> None:
    """Neither printing nor copying a provider gives its key away; a URL's password neither."""
    llm = BUILDERS[name](api_key=KEY, base_url="https://me:hunter2@example.org/v1?token=t#x")
    shown = f"{llm!r} {llm} {vars(llm)}"

    assert KEY not in shown
    assert "hunter2" not in repr(llm)
    assert "https://example.org/v1" in repr(llm)
    with pytest.raises(TypeError):
        pickle.dumps(_settings.Secret(KEY))
    with pytest.raises(TypeError):
        copy.copy(_settings.Secret(KEY))


@pytest.mark.parametrize(
    ("spec", "name", "model"),
    [
        ("anthropic:claude-x", "anthropic", "claude-x"),
        ("openai:gpt-x", "openai", "gpt-x"),
        ("openai:org/model:tag", "openai", "org/model:tag"),
    ],
)
def test_a_model_string_names_provider_and_model(
    spec: str, name: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands after the first colon is the model, whatever it holds."""
    monkeypatch.setenv(VARIABLES[name], KEY)
    llm = frontiers.from_string(spec)

    assert isinstance(llm, LLMPort)
    assert name == llm.origin
    assert repr(model) in repr(llm)


@pytest.mark.parametrize("spec", ["", "gpt-x", "anthropic", "anthropic:", "openai: ", "mistral:x"])
def test_another_model_string_is_refused(spec: str) -> None:
    """The message names the prefixes that are known."""
    with pytest.raises(InvalidSpec, match="anthropic:<model>, openai:<model>"):
        frontiers.from_string(spec)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_settings_reach_the_request(name: str) -> None:
    """Further fields and headers are sent; the default model where the request names none."""
    async with serving(whole(answer_of(name)), whole(answer_of(name))) as server:
        llm = port(
            name,
            server.url,
            model="m-default",
            extra_body={"temperature": 0},
            extra_headers={"x-team": "blue"},
        )
        await ask(llm, request())
        what = request()
        await ask(llm, type(what)(model="", system="", tools=(), messages=what.messages))

    assert ["m-1", "m-default"] == [received.json["model"] for received in server.received]
    assert 0 == server.received[0].json["temperature"]
    assert "blue" == server.received[0].headers["x-team"]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_connection_is_used_again(name: str) -> None:
    """One loop, one client: the second attempt opens no connection."""
    async with serving(*[whole(answer_of(name))] * 3) as server:
        llm = port(name, server.url)
        for _ in range(3):
            await ask(llm, request())

        assert 1 == server.connections


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_connection_is_used_again_after_a_stream(name: str) -> None:
    """The end of a stream that comes a moment after its last event is read too."""
    events = [chunk(event(data)) for data in events_of(name)]
    async with serving(*[[head(), *events, PAUSE, END]] * 3) as server:
        llm = port(name, server.url)
        for _ in range(3):
            await ask(llm, request(stream=True))

        assert 1 == server.connections


@pytest.mark.parametrize("name", PROVIDERS)
async def test_many_attempts_at_once(name: str) -> None:
    """Attempts on one object do not disturb each other."""
    answers = [whole(answer_of(name))] * 20
    async with serving(*answers) as server:
        llm = port(name, server.url)
        replies = await asyncio.gather(*(ask(llm, request()) for _ in answers))

    assert 20 == len(replies) == len(server.received)


@pytest.mark.parametrize("name", PROVIDERS)
def test_one_object_serves_several_loops(name: str) -> None:
    """One loop after the other, and two at once in threads; each closes what it opened."""
    with StrictProvider(lambda _: Answer(text="Hi.")) as provider:
        key = {"api_key": provider.api_key}
        url = provider.anthropic_url if name == "anthropic" else provider.openai_url
        llm = BUILDERS[name](base_url=url, **key)
        both = threading.Barrier(2, timeout=30)

        async def meet_and_ask() -> None:
            both.wait()
            await ask(llm, request(stream=True))

        for _ in range(3):
            asyncio.run(_ask_once(llm))
        threads = [threading.Thread(target=lambda: asyncio.run(meet_and_ask())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert 5 == len(provider.calls)
    gc.collect()  # an unclosed socket would warn now, and warnings are errors


@pytest.mark.parametrize("turns", range(4))
def test_an_object_that_dies_with_its_loop_closes_all_connections(turns: int) -> None:
    """Whether the loop ends before, in the midst of or after the closing, all of it is done."""
    with StrictProvider(lambda _: Answer(text="Hi.")) as provider:

        async def main() -> None:
            llm = frontiers.openai(api_key=provider.api_key, base_url=provider.openai_url)
            await asyncio.gather(*(_ask_once(llm) for _ in range(20)))
            del llm
            gc.collect()
            for _ in range(turns):
                await asyncio.sleep(0)

        before = len(_clients._OPEN)
        asyncio.run(main())
    gc.collect()

    assert before == len(_clients._OPEN)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_forgotten_provider_closes_its_connections(name: str) -> None:
    """An object that nobody holds any more leaves no open connection in its loop."""
    async with serving(whole(answer_of(name))) as server:
        await ask(port(name, server.url), request())
        gc.collect()
        await asyncio.wait_for(server.hung_up.wait(), 10)


async def _ask_once(llm: LLMPort) -> None:
    await ask(llm, request())


def test_the_extras_are_named_as_the_modules() -> None:
    """The command in `MissingExtra` works because extra and module share their name."""
    for name in PROVIDERS:
        assert importlib.util.find_spec(name) is not None


async def test_an_origin_of_its_own() -> None:
    """A server with extensions of its own keeps its content apart."""
    async with serving(whole(answer_of("openai"))) as server:
        llm = port("openai", server.url, origin="local")
        reply, _ = await ask(llm, request())

    assert "local" == llm.origin
    assert reply.native is not None
    assert "local" == reply.native.origin


async def test_an_unknown_stop_reason_is_shown_shortened() -> None:
    """A server's text in a message has bounds."""
    async with serving(whole(message(stop="x" * 10_000))) as server:
        with pytest.raises(Exception, match=r"x{60}'") as caught:
            await ask(port("anthropic", server.url), request())

    assert len(str(caught.value)) < 400
