"""`@tool`: says what a function may do to the world, and makes it callable by a model."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.types import JSON, ToolDefinition
from agentkit.tools.approval import NO_APPROVAL, Approval, RequiresApproval, check_approval
from agentkit.tools.reconcile import Reconciled
from agentkit.tools.schema import Schema, build_schema
from agentkit.tools.signature import Signature, read_signature

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "FunctionTool", "OnInDoubt", "Tool", "tool"]

DEFAULT_TIMEOUT_SECONDS = 300.0
"""How long a call may take where the tool does not say."""

OnInDoubt: TypeAlias = Literal["ask", "run_again", "tell_model"]
"""See `tool`."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(frozen=True, eq=False, kw_only=True)
class Tool:
    """A function that a model may call. Made by `@tool`; two tools are equal if they are the same.

    Args:
        name: what the model calls it.
        side_effecting: whether a call changes anything outside the process.
        idempotent: whether calls with the same `ToolContext.idempotency_key` have one effect.
        timeout: longest time of one attempt, in seconds.
        transactional, max_attempts, on_in_doubt, in_doubt_on: see `tool`.
        approval: what was said about a person's approval, see `tool`.
        reconcile: finds out what became of an earlier attempt; itself a tool without effects, that
            is never shown to a model.
        signature: of the function.
        about: description for the model, instead of the docstring's.
    """

    name: str
    side_effecting: bool
    idempotent: bool = False
    transactional: bool = False
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    max_attempts: int | None = None
    reconcile: Tool | None = None
    on_in_doubt: OnInDoubt | None = None
    in_doubt_on: tuple[type[BaseException], ...] = ()
    approval: Approval = NO_APPROVAL
    signature: Signature
    about: str | None = None

    @property
    def function(self) -> Callable[..., object]:
        """The function itself."""
        return self.signature.function

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop; otherwise in a thread."""
        return self.signature.is_async

    @property
    def repeatable(self) -> bool:
        """Whether running a call again can do no harm (idempotent: with the same key;
        transactional: where the attempt before it was rolled back).
        """
        return self.idempotent or self.transactional or not self.side_effecting

    @property
    def definition(self) -> ToolDefinition:
        """What the model is told. Made once, when first asked for.

        Raises:
            InvalidSpec: a parameter's type has no JSON Schema, or cannot be resolved.
        """
        return self._schema.definition

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, object]:
        """Check a model's arguments and turn them into what the function takes.

        Nothing is guessed: `"5"` is no int and `1` is no bool. Values that JSON can only write as
        text (dates, UUIDs, Decimals, paths, Enums) are read from it. An argument that is left out
        is left out of the result, so that the function's own default applies.

        Raises:
            ArgumentsInvalid: an argument is missing, unknown or of the wrong type.
        """
        return self._schema.bind(arguments)

    @cached_property
    def _schema(self) -> Schema:
        return build_schema(self.signature, name=self.name, description=self.about)


class FunctionTool(Tool, Generic[_P, _R]):
    """A `Tool` that is still called like the function it was made of."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the function directly: no journal, no validation, no timeout."""
        return cast("_R", self.function(*args, **kwargs))


def tool(
    function: object = None,
    /,
    *,
    side_effecting: bool | None = None,
    idempotent: bool = False,
    transactional: bool = False,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    max_attempts: int | None = None,
    reconcile: Callable[..., Reconciled | Awaitable[Reconciled]] | None = None,
    on_in_doubt: OnInDoubt | None = None,
    in_doubt_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    requires_approval: RequiresApproval = False,
    approval_seconds: float | None = None,
    on_deadline: Literal["reject", "approve"] = "reject",
    on_repeat_refused: Literal["refuse", "ask"] = "refuse",
    name: str | None = None,
    description: str | None = None,
) -> Callable[[Callable[_P, _R]], FunctionTool[_P, _R]]:
    """Make a sync or async function a tool: `@tool(side_effecting=False)`.

    Args:
        function: takes nothing; it is there so that a bare `@tool` can say what is missing.
        side_effecting: must be said. `False`: the call changes nothing outside, so it may be run
            again whenever its outcome is not known.
        idempotent: the effect happens once per `ToolContext.idempotency_key`, so the call may be
            run again with the same key. Needs `side_effecting=True`.
        transactional: the effect is what the tool writes to the store's own database, through the
            `Transaction` that it takes; it is committed with the outcome of the call, so that both
            are there or neither. The tool is a sync function and has 2 seconds. Needs
            `side_effecting=True` and a store with transactions (SQLite).
        timeout: longest time of one attempt, in seconds. A side-effecting call that takes longer
            has an unknown outcome.
        max_attempts: `None`: an exception is the outcome at once, and an interrupted attempt of a
            call that may be run again is, up to the runtime's own limit. A number: exceptions and
            interruptions of such a call are followed by another attempt until there were that
            many. A side-effecting tool that is not idempotent is never attempted twice, and takes
            no number above 1.
        reconcile: a function, sync or async, that finds out what became of an attempt whose
            outcome is not known, and returns `Done(result)`, `CannotHappen()` or `Unknown()`. It
            takes any of the tool's own parameters by name, and a `ToolContext`, and must change
            nothing. One that raises or takes longer than `timeout` could not tell.
        on_in_doubt: what happens where nobody knows the outcome of an attempt. `"ask"`: a person
            decides; `"tell_model"`: the model is told that it is not known, and the call is not
            made again; `"run_again"`: only for calls that may be run again. By default such calls
            are, and about all others a person is asked.
        in_doubt_on: exceptions after which it is not known whether the call took effect, such as
            a connection that broke off. All others are outcomes: the model is told of the error.
        requires_approval: whether a call waits until a person approves it. `True`: unless the run
            is set to `autonomy="auto"`; `"always"`: in any run. A function of the checked arguments
            and the `RunContext` decides for each call; it is asked once, and if it raises or
            returns anything but `False` the call waits.
        approval_seconds: how long such a question stands; for ever by default.
        on_deadline: what becomes of a call that nobody decided in time: `"reject"`, or `"approve"`
            where waiting is all that was wanted.
        on_repeat_refused: what happens where the model asks again, with the same arguments, for a
            call that a person has rejected in this run. `"refuse"`: it is rejected again;
            `"ask"`: a person is asked again.
        name: what the model calls it; the function's name by default. 1-64 of `a-z A-Z 0-9 _ -`.
        description: what the model is told; the docstring's description by default.

    Raises:
        InvalidSpec: an option is missing or impossible, or the function cannot be a tool; at
            decoration.
    """
    if function is not None or side_effecting is None:
        label = getattr(function, "__name__", "tool")
        raise InvalidSpec(
            f"{label}: say whether it changes anything outside the process: "
            "`@tool(side_effecting=True)` or `@tool(side_effecting=False)`"
        )
    options = _Options(
        side_effecting,
        idempotent=idempotent,
        transactional=transactional,
        timeout=timeout,
        max_attempts=max_attempts,
        reconcile=reconcile,
        on_in_doubt=on_in_doubt,
        in_doubt_on=in_doubt_on if isinstance(in_doubt_on, tuple) else (in_doubt_on,),
        approval=Approval(requires_approval, approval_seconds, on_deadline, on_repeat_refused),
        name=name,
        description=description,
    )

    def decorate(function: Callable[_P, _R]) -> FunctionTool[_P, _R]:
        return _made(function, options, _names_around())

    return decorate


class _Options(NamedTuple):
    """What was said of a tool."""

    side_effecting: bool
    idempotent: bool
    transactional: bool
    timeout: float
    max_attempts: int | None
    reconcile: Callable[..., object] | None
    on_in_doubt: OnInDoubt | None
    in_doubt_on: tuple[type[BaseException], ...]
    approval: Approval
    name: str | None
    description: str | None


def _made(
    function: Callable[_P, _R], options: _Options, namespace: Mapping[str, object]
) -> FunctionTool[_P, _R]:
    label = _name_of(function) if options.name is None else options.name
    try:
        _check_options(options)
        check_approval(options.approval)
        _check_function(function, label)
        signature = read_signature(function, namespace)
        _check_transaction(options, signature)
        reconcile = _reconciler(options, label, signature, namespace)
    except InvalidSpec as exc:
        raise InvalidSpec(f"tool {label!r}: {exc}") from None
    made: FunctionTool[_P, _R] = FunctionTool(
        name=label,
        side_effecting=options.side_effecting,
        idempotent=options.idempotent,
        transactional=options.transactional,
        timeout=options.timeout,
        max_attempts=options.max_attempts,
        reconcile=reconcile,
        on_in_doubt=options.on_in_doubt,
        in_doubt_on=options.in_doubt_on,
        approval=options.approval,
        signature=signature,
        about=options.description,
    )
    # What `functools.update_wrapper` sets, on a frozen value: help() and signature() see it.
    copied = ("__module__", "__name__", "__qualname__", "__doc__")
    vars(made).update({key: getattr(function, key, None) for key in copied})
    vars(made)["__wrapped__"] = function
    return made


def _reconciler(
    options: _Options, label: str, signature: Signature, namespace: Mapping[str, object]
) -> Tool | None:
    function = options.reconcile
    if function is None:
        return None
    try:
        _check_function(function, label)
        found = read_signature(function, namespace)
    except InvalidSpec as exc:
        raise InvalidSpec(f"its reconcile function: {exc}") from None
    if found.transaction:
        raise InvalidSpec("its reconcile function changes nothing, so it gets no Transaction")
    known = {parameter.name: parameter for parameter in signature.parameters}
    for parameter in found.parameters:
        mine = known.get(parameter.name)
        if mine is None:
            raise InvalidSpec(
                f"its reconcile function takes {parameter.name!r}, which the tool does not: it is "
                "given the call's own arguments, and a ToolContext where it asks for one"
            )
        if parameter.required and not mine.required:
            raise InvalidSpec(
                f"its reconcile function needs the default of {parameter.name!r}, which a call "
                "may leave out"
            )
    return Tool(name=label, side_effecting=False, timeout=options.timeout, signature=found)


def _check_function(function: object, label: object) -> None:
    if isinstance(function, Tool):
        raise InvalidSpec("it is a tool already")
    if isinstance(function, type) or not callable(function):
        raise InvalidSpec(f"a {type(function).__name__} is not a function")
    if not isinstance(label, str) or not _NAME.match(label):
        raise InvalidSpec("a name has 1-64 letters, digits, `_` and `-`: pass name='…'")


def _check_options(options: _Options) -> None:
    side_effecting, idempotent, transactional, timeout, max_attempts = options[:5]
    description = options.description
    flags: tuple[object, ...] = (side_effecting, idempotent, transactional)
    if not all(isinstance(flag, bool) for flag in flags):
        raise InvalidSpec("side_effecting, idempotent and transactional are True or False")
    if (idempotent or transactional) and not side_effecting:
        word = "idempotent" if idempotent else "transactional"
        raise InvalidSpec(f"{word}=True is about effects: it needs side_effecting=True")
    if not _is_number(timeout) or not 0 < timeout < math.inf:
        raise InvalidSpec(f"timeout must be a positive number of seconds, not {timeout!r}")
    _check_doubt(options)
    if not isinstance(description, str | None):
        raise InvalidSpec(f"description must be a text, not {description!r}")
    if max_attempts is None:
        return
    if type(max_attempts) is not int or max_attempts < 1:
        raise InvalidSpec(f"max_attempts must be a whole number from 1, not {max_attempts!r}")
    if max_attempts > 1 and side_effecting and not (idempotent or transactional):
        raise InvalidSpec(
            "a side-effecting tool is never attempted twice: drop max_attempts, or make it "
            "idempotent (honour ToolContext.idempotency_key) and say idempotent=True"
        )


def _check_transaction(options: _Options, signature: Signature) -> None:
    if not options.transactional:
        if signature.transaction:
            name = signature.transaction
            raise InvalidSpec(f"{name!r} asks for a Transaction: say transactional=True")
        return
    if not signature.transaction:
        raise InvalidSpec(
            "transactional=True needs a parameter annotated with agentkit.tools.Transaction, "
            "through which it writes"
        )
    if signature.is_async:
        raise InvalidSpec("a transactional tool is a plain function: write def, not async def")


def _check_doubt(options: _Options) -> None:
    choice, raised = options.on_in_doubt, options.in_doubt_on
    doubts = options.idempotent or options.reconcile or choice or raised
    if options.transactional and doubts:
        raise InvalidSpec(
            "a transactional call is never in doubt: drop idempotent, reconcile, on_in_doubt and "
            "in_doubt_on"
        )
    if choice not in {None, "ask", "run_again", "tell_model"}:
        raise InvalidSpec(f"on_in_doubt is 'ask', 'run_again' or 'tell_model', not {choice!r}")
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in raised):
        raise InvalidSpec(f"in_doubt_on takes exception classes, not {raised!r}")
    if not options.side_effecting and (options.reconcile or choice or raised):
        raise InvalidSpec(
            "reconcile, on_in_doubt and in_doubt_on are about effects: a call without any is just "
            "made again. They need side_effecting=True"
        )
    if choice == "run_again" and not options.idempotent:
        raise InvalidSpec(
            "on_in_doubt='run_again' could do it twice: make the tool idempotent (honour "
            "ToolContext.idempotency_key) and say idempotent=True"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _name_of(function: object) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _names_around() -> Mapping[str, object]:
    """Local names of the place that is decorating: types defined in a function are there."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return frame.f_locals if frame is not None else {}
