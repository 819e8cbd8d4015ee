"""HTTP client for a model server, which follows no redirects and accepts only answers of a limited size."""

from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

MAX_ANSWER_BYTES = 64 << 20  # log p of a long prompt's tokens takes a few MB


class UnusableAnswer(OpenAIError):
    """Error: an answer is too large or compressed; the client does not retry the request."""


class _LimitedHttpClient(DefaultAsyncHttpxClient):
    """HTTP client that rejects answers above MAX_ANSWER_BYTES and compressed answers, which can unpack to gigabytes."""

    async def send(self, request: Any, **options: Any) -> Any:
        response = await super().send(request, **{**options, "stream": True})
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise UnusableAnswer("it compresses its answers although it is sent Accept-Encoding: identity")
            content = bytearray()
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise UnusableAnswer(f"an answer has more than {MAX_ANSWER_BYTES >> 20} MiB")
        finally:
            await response.aclose()
        return type(response)(
            response.status_code,
            headers=response.headers,
            content=bytes(content),
            request=request,
            extensions=response.extensions,
        )


def make_client(server: str, key: str, retries: int, timeout: float) -> AsyncOpenAI:
    """Return a client for the server's URL; "none" replaces an empty key, because the client requires a key."""
    http_client = _LimitedHttpClient(follow_redirects=False, headers={"Accept-Encoding": "identity"}, timeout=timeout)
    return AsyncOpenAI(
        base_url=server, api_key=key or "none", max_retries=retries, timeout=timeout, http_client=http_client
    )
