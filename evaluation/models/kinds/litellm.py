"""A model of any provider that LiteLLM knows: Anthropic, Bedrock, Vertex, Azure, Ollama and others.

The model's name is `PROVIDER/MODEL`, as on docs.litellm.ai/docs/providers, which also names the environment variables
of each provider's keys. Requests are sent again after 429, 5xx and time-outs: LiteLLM's own retries also repeat what is
rejected, without waiting.
"""

import asyncio
import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.data.readers.answers import FILTERED
from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.asking import MissingAnswer
from evenhand.evaluation.models.remote import RemoteModel
from evenhand.evaluation.models.request_parameters import Body
from evenhand.evaluation.models.server_client import (
    MAX_REASON,
    TIMEOUT_SECONDS,
    hide_secrets,
    is_transient,
    waiting_time,
)

if TYPE_CHECKING:  # takes a second
    from types import ModuleType

    from openai import AsyncOpenAI

RETRIES = 8  # of one request: half a minute
# Without it, LiteLLM downloads a table of prices when it is imported.
LOCAL_PRICES = "LITELLM_LOCAL_MODEL_COST_MAP"


class LiteLLMModel(RemoteModel):
    """A model that LiteLLM asks; `model.server`, if it is given, is the address of the provider."""

    @property
    def note(self) -> str:
        return super().note.replace("A server answered", "A provider (by LiteLLM) answered", 1)

    def identity(self) -> dict[str, Json]:
        """Return the name of the model.

        Raises:
            InputError: LiteLLM is not installed, does not know the provider, or a decoding argument has no equivalent.
        """
        require_extra("litellm", "litellm", field=self.SETTING)
        litellm = quiet_litellm()
        try:
            litellm.get_llm_provider(self.name, api_base=self.settings.server)
        except litellm.BadRequestError:
            raise InputError(
                "model", f"LiteLLM knows no provider of {self.name!r}; give PROVIDER/MODEL (docs/servers.md)."
            ) from None
        return super().identity()

    async def ask(self, client: "AsyncOpenAI | None", body: Body) -> Any:
        from openai import APIError  # LiteLLM's errors are derived from it

        for attempt in range(RETRIES):
            try:
                return await self._complete(body)
            except APIError as error:
                if not is_transient(error):
                    raise
            await asyncio.sleep(waiting_time(attempt + 1))
        return await self._complete(body)

    async def _complete(self, body: Body) -> Any:
        """Return the answer to a request, which is sent once."""
        litellm = quiet_litellm()
        try:
            return await litellm.acompletion(
                **body, base_url=self.settings.server, timeout=TIMEOUT_SECONDS, max_retries=0
            )
        except litellm.ContentPolicyViolationError:
            raise MissingAnswer(FILTERED) from None
        except (litellm.AuthenticationError, litellm.NotFoundError, litellm.PermissionDeniedError) as error:
            reason = hide_secrets(" ".join(str(error).split()))[:MAX_REASON]
            raise InputError("model", f"{self.name}: {reason}") from None


def quiet_litellm() -> "ModuleType":
    """Return the package litellm, which then sends and prints nothing but the requests."""
    os.environ.setdefault(LOCAL_PRICES, "True")
    litellm: Any = import_module("litellm")  # takes seconds
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    return litellm
