"""Which parameter a server rejects, by what providers and gateways say."""

import pytest

from evenhand.evaluation.models.request_parameters import RejectedRequest, rejected_parameter

BODY = {"model": "m", "messages": [], "seed": 1, "temperature": 0.7, "top_p": 0.9, "max_tokens": 40, "stop": ["."]}


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ({"message": "temperature: only 1 is supported", "type": "invalid_request_error"}, "temperature"),
        ({"error": {"message": "`temperature` must be 1 when thinking is enabled", "code": 400}}, "temperature"),
        ({"error": {"message": "Für dieses Modell ist top_p fest eingestellt."}}, "top_p"),
        ({"error": {"message": "We ignore determinism", "param": "seed"}}, "seed"),
        ({"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}, "seed"),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'; the maximum is 4096.", "max_tokens"),
        ("temperature and top_p cannot both be specified for this model", "temperature"),
    ],
)
def test_words_that_nobody_listed_name_a_parameter(reason, name):
    assert rejected_parameter(reason, BODY) == name


@pytest.mark.parametrize(
    "reason",
    [
        {"error": {"message": "Invalid 'temperature': above 2.", "param": "temperature"}},
        "max_tokens is too large: 9000. This model has at most 4096.",
        "top_p must be in the range (0, 1]",
        "stop: expected a string",
        "no such model",
        "",
    ],
)
def test_wrong_values_are_for_the_user_to_mend_and_other_faults_name_nothing(reason):
    assert rejected_parameter(reason, BODY) is None


@pytest.mark.parametrize(
    ("reason", "is_filter"),
    [
        ({"message": "Extra inputs are not permitted: 'seed', 'input': {'content': 'Follow safety rules.'}"}, False),
        ({"detail": [{"loc": ["body", "seed"], "input": "Follow safety rules."}]}, False),
        ({"message": "Rejected by our safety system.", "code": "content_filter"}, True),
        ({"message": "The prompt was flagged."}, True),
    ],
)
def test_the_words_of_the_request_in_an_error_are_no_filter(reason, is_filter):
    """The system prompt has “safety”, and FastAPI and vLLM repeat it in any error."""
    sent = {"messages": [{"role": "system", "content": "Follow safety rules."}]}
    assert RejectedRequest("model.server", "rejected", 400, reason, sent).is_filter == is_filter
