"""Models of any provider by LiteLLM, with its mock answers and with a server on this machine."""

from importlib.util import find_spec

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models import server_client
from evenhand.evaluation.models.kinds import litellm as kind
from evenhand.evaluation.models.kinds import model_kind
from evenhand.evaluation.tables import join_batches
from tests.fault_server import serving
from tests.served_prompts import served_prompts

pytestmark = pytest.mark.skipif(find_spec("litellm") is None, reason="needs litellm")
CANARY = "canary-key-0123456789"
DECODING = DecodingSettings(arguments={"max_new_tokens": 20, "temperature": 0.7})


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setattr(kind, "RETRIES", 2)
    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 1)


def model_of(name, **settings):
    model = ModelSettings(name=name, source="litellm", **settings)
    return model_kind(model)(model, DECODING, tag="")


def test_a_parameter_that_the_provider_lacks_is_left_out_and_recorded():
    """Anthropic's API has no seed, which LiteLLM knows without a request."""
    model = model_of("anthropic/claude-test", request={"mock_response": "Hello, you."})
    assert model.identity() == {"model": "anthropic/claude-test"}
    responses = join_batches(model.respond(served_prompts(5)))
    assert responses["response"].tolist() == ["Hello, you."] * 5 and not responses["cut"].any()
    assert model.facts()["model"]["parameters"] == {"left_out": ["seed"]}
    assert model.without_weights


def test_a_server_gets_the_key_of_the_environment_and_failed_requests_again(caplog):
    with serving("rate", "broken") as (url, seen):
        model = model_of("openai/some-model", server=url, concurrency=4)
        responses = join_batches(model.respond(served_prompts(12)))
    assert (responses["response"] != "").all() and responses["left_out"].isna().all()
    # each response ends with the seed of its own prompt
    ends = [int(text.split()[-1]) for text in responses["response"]]
    assert len(set(ends)) == 12 and set(ends) < {body["seed"] for body in seen["bodies"]}
    assert seen["keys"] == {f"Bearer {CANARY}"} and CANARY not in caplog.text
    assert len(seen["bodies"]) > 13  # the probe, the prompts, and the requests that failed


def test_errors_are_one_line_without_the_key():
    with serving("refused", share=1) as (url, _), pytest.raises(InputError) as error:
        model_of("openai/some-model", server=url).parameters()
    assert "bad key" in str(error.value) and CANARY not in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(InputError, match="PROVIDER/MODEL"):
        model_of("some-model-of-nobody").identity()


def test_a_text_that_a_filter_withholds_is_left_out():
    answer = {"error": {"message": "flagged", "code": "content_filter"}}

    def reject(body):
        return (400, answer) if "person 3" in body["messages"][-1]["content"] else None

    with serving(reject=reject) as (url, _):
        responses = join_batches(model_of("openai/some-model", server=url).respond(served_prompts(5)))
    assert responses["left_out"].fillna("").tolist() == ["", "", "", "content_filter", ""]
