"""What a run is given to work with: a model, a store, a clock; and the identity of the run."""

from agentkit.core.runtime.chance import SystemChance
from agentkit.core.runtime.clock import SystemClock
from agentkit.core.runtime.context import CheckpointerPort, RunContext, Services
from agentkit.core.runtime.invoker import MODEL_SECONDS, Invoker
from agentkit.core.runtime.retry import RetryPolicy

__all__ = [
    "MODEL_SECONDS",
    "CheckpointerPort",
    "Invoker",
    "RetryPolicy",
    "RunContext",
    "Services",
    "SystemChance",
    "SystemClock",
]
