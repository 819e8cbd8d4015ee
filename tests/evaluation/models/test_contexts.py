"""Contexts and responses in the format of each kind of model."""

from dataclasses import replace

import pytest
import torch

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models import chat_templates
from evenhand.evaluation.models.chat_templates import build_chat
from evenhand.evaluation.models.contexts import (
    decode_responses,
    encode_contexts,
    encode_responses,
    prompt_format,
    render_contexts,
)
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from tests import tiny_checkpoints
from tests.tiny_models import EOS, WORDS, tiny, word_tokenizer


@pytest.fixture(scope="module")
def gpt2():
    return tiny("gpt2")


def test_dialogue_contexts_are_persona_prompt_tag_and_eos(gpt2):
    assert render_contexts(gpt2, ["a b.", "c"], ["x\ny", ""], " no_bias") == [
        "x\ny\na b. no_bias<eos>",
        "c no_bias<eos>",
    ]


def test_encoder_decoder_contexts_end_with_eos():
    bart = tiny("bart")
    assert render_contexts(bart, ["a", "b"], ["x", ""], " c") == ["x\na c", "b c"]
    assert encode_contexts(bart, ["a c"]) == [[3, 5, EOS]]
    without_eos = replace(tiny("blenderbot"), tokenizer=word_tokenizer(adds_eos=False))
    assert encode_contexts(without_eos, ["a c"]) == [[3, 5, EOS]]
    assert encode_responses(without_eos, ["a"], ["c"]) == [[5, EOS]]


CHAT = "{% for m in messages %}[{{ m['role'] }}:{{ m['content'] }}]{% endfor %}{{ '[me:' if add_generation_prompt }}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHAT, "[system:x][user:a t][me:"),
        (
            "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT,
            "[user:x\na t][me:",
        ),
        ("{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}" + CHAT, "[user:x\na t][me:"),
    ],
    ids=["takes", "refuses", "drops"],
)
def test_chat_templates_with_and_without_a_system_message(gpt2, template, expected):
    tokenizer = word_tokenizer()
    tokenizer.chat_template = template
    chat = DialogueModel(gpt2.model, tokenizer, "chat", "tiny", "0")
    assert render_contexts(chat, ["a", "b"], ["x", ""], " t") == [expected, "[user:b t][me:"]
    both = render_contexts(replace(chat, system_prompt="y"), ["a"], ["x"], " t")
    assert both == [expected.replace("x", "y\nx")]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("{{ raise_exception('no bees') }}", "no bees"),
        ("{{ 1 // 0 }}", "zero"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 0.2 seconds"),
    ],
)
def test_a_template_that_fails_for_some_messages_is_one_error(gpt2, monkeypatch, wrong, reason):
    monkeypatch.setattr(chat_templates, "MAX_SECONDS", 0.2)
    tokenizer = word_tokenizer()
    tokenizer.chat_template = f"{{% if messages[-1]['content'] == 'b' %}}{wrong}{{% endif %}}{CHAT}"
    chat = DialogueModel(gpt2.model, tokenizer, "chat", "tiny", "0")
    assert render_contexts(chat, ["a"], [""]) == ["[user:a][me:"]
    with pytest.raises(InputError, match=rf"^model: the chat template .* message 'b': .*{reason}"):
        render_contexts(chat, ["a", "b"], ["", ""])


def test_a_template_that_loops_for_a_system_message_is_an_error(gpt2, monkeypatch):
    """Whether the template supports system messages is tried; a loop does not count as an answer."""
    monkeypatch.setattr(chat_templates, "MAX_SECONDS", 0.2)
    tokenizer = word_tokenizer()
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    tokenizer.chat_template = f"{{% if messages[0]['role'] == 'system' %}}{loop}{{% endif %}}{CHAT}"
    chat = DialogueModel(gpt2.model, tokenizer, "chat", "tiny", "0")
    with pytest.raises(InputError, match="more than 0.2 seconds"):
        render_contexts(chat, ["a"], [""])


def test_a_response_ends_as_the_chat_template_ends_a_turn():
    base = tiny("gpt2")
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} z y {% endfor %}"
    chat = DialogueModel(base.model, tokenizer, "chat", "tiny", "0")
    a, y, z = (WORDS.index(word) for word in "ayz")
    assert encode_responses(chat, ["c z y "], ["a"]) == [[a, EOS]]  # neither z nor y ends a generation
    base.model.generation_config.eos_token_id = [EOS, y]
    assert encode_responses(chat, ["c z y "] * 3, ["a", "a y", "a z"]) == [[a, y], [a, y], [a, z, y]]
    assert encode_responses(base, ["c<eos>"], ["a"]) == [[a, EOS]]  # a dialogue model has no turns to end


# --- checkpoints in the formats of models on the hub


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return a function that loads a tiny checkpoint of a family, which is saved once."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def load(name, **arguments):
        torch.manual_seed(0)
        if not (folder / name).exists():
            getattr(tiny_checkpoints, name)(folder / name)
        return load_dialogue_model(ModelSettings(name=str(folder / name), device="cpu", **arguments))

    return load


def split_tokens(model, text, persona="", tag=""):
    """Return the tokens of a context, with the tokens of plain text between special tokens joined."""
    [ids] = encode_contexts(model, render_contexts(model, [text], [persona], tag))
    parts, special = [""], {index for index, token in model.tokenizer.added_tokens_decoder.items() if token.special}
    for token in ids:
        if token in special:
            parts += [model.tokenizer.convert_ids_to_tokens(token), ""]
        else:
            parts[-1] += model.tokenizer.decode([token])
    return [part for part in parts if part]


HEADER = ["<|start_header_id|>", "<|end_header_id|>"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("base_without_template", ["<|begin_of_text|>", "P.\nHi!", "<|end_of_text|>"]),
        (
            "llama",
            [
                *(
                    "<|begin_of_text|>",
                    HEADER[0],
                    "system",
                    HEADER[1],
                    "\n\nToday Date: 26 Jul 2024\n\nP.",
                    "<|eot_id|>",
                ),
                *(HEADER[0], "user", HEADER[1], "\n\nHi!", "<|eot_id|>", HEADER[0], "assistant", HEADER[1], "\n\n"),
            ],
        ),
        ("gemma", ["<bos>", "<start_of_turn>", "user\nP.\nHi!", "<end_of_turn>", "\n", "<start_of_turn>", "model\n"]),
        (
            "qwen",
            [
                *("<|im_start|>", "system\nP.", "<|im_end|>", "\n", "<|im_start|>", "user\nHi!", "<|im_end|>", "\n"),
                *("<|im_start|>", "assistant\n<think>\n\n</think>\n\n"),
            ],
        ),
        (
            "thinker",
            [
                *("<|im_start|>", "system\nP.", "<|im_end|>", "\n", "<|im_start|>", "user\nHi!", "<|im_end|>", "\n"),
                *("<|im_start|>", "assistant\n<think>\n"),
            ],
        ),
    ],
)
def test_contexts_token_by_token(checkpoint, name, expected):
    assert split_tokens(checkpoint(name), "Hi!", "P.") == expected
    assert split_tokens(checkpoint(name, system_prompt="P."), "Hi!") == expected


def test_the_date_in_a_template_is_fixed(gpt2):
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{{ strftime_now( '%Y-%m-%d' ) }} " + CHAT
    chat = DialogueModel(gpt2.model, tokenizer, "chat", "tiny", "0")
    assert render_contexts(chat, ["a"], [""]) == ["2024-07-26 [user:a][me:"]
    tokenizer.chat_template = "{% set form = '%Y' ~ '-%m' %}{{ strftime_now(form) }} " + CHAT
    assert render_contexts(chat, ["a"], [""]) == ["2024-07 [user:a][me:"]


def test_the_prompt_format_has_a_hash_and_a_date(checkpoint):
    names = ("base_without_template", "llama", "gemma", "qwen", "thinker", "dialogpt", "blenderbot")
    facts = {name: prompt_format(checkpoint(name)) for name in names}
    assert {name for name in names if facts[name]["date"]} == {"llama"} and facts["llama"]["date"] == "2024-07-26"
    assert len({fact["sha256"] for fact in facts.values()}) == len(names)
    qwen = checkpoint("qwen")
    assert prompt_format(replace(qwen, system_prompt="Be fair.")) == facts["qwen"]  # a separate field
    qwen.tokenizer.chat_template += " "
    assert prompt_format(qwen)["sha256"] != facts["qwen"]["sha256"]


def decode_texts(model, context, generated):
    encode = model.tokenizer.encode
    answers = decode_responses(model, [encode(context)] * len(generated), [encode(text) for text in generated])
    return [text for text, _ in answers]


def test_a_response_excludes_reasoning(checkpoint):
    thinker, end = checkpoint("thinker"), "<|im_end|>"
    thinking = render_contexts(thinker, ["Hi!"], [""])[0]
    assert decode_texts(thinker, thinking, [f"She is deaf.\n</think>\n\nHello.{end}", f"</think>Yes.{end}"]) == [
        "Hello.",
        "Yes.",
    ]
    unfinished = ["She is deaf.", f"She is deaf.{end}", "", f"<think>{end}"]
    assert decode_texts(thinker, thinking, unfinished) == [None] * 4
    assert decode_texts(thinker, thinking, [f"Well.</think>\n\n{end}"]) == [""]  # an empty answer after the reasoning
    # A model with reasoning turned off may reason regardless.
    qwen = checkpoint("qwen")
    [plain] = render_contexts(qwen, ["Hi!"], [""])
    generated = [f"Hello.{end}", f"<think>\nDeaf?\n</think>\n\nHello.{end}", "<think>\nDeaf?", end]
    assert decode_texts(qwen, plain, generated) == ["Hello.", "Hello.", None, ""]
    marked = [f"[THINK]Deaf?[/THINK] Hello.{end}", f"<thought>Deaf?</thought>Hello.{end}", "[THINK]Deaf?"]
    assert decode_texts(qwen, plain, marked) == ["Hello.", "Hello.", None]
    own = replace(qwen, reasoning=("<<", ">>"))
    assert decode_texts(own, plain, [f"<<Deaf?>> Hello.{end}", "<<Deaf?"]) == ["Hello.", None]
    assert decode_responses(own, [[1]] * 2, [own.tokenizer.encode(it) for it in ("Hi", "<think>a</think>Hi")]) == [
        ("Hi", False),
        ("Hi", True),
    ]
    dialogpt = checkpoint("dialogpt")  # only chat models reason
    assert decode_texts(dialogpt, "Hi!", ["<think> is a tag"]) == ["<think> is a tag"]


def test_earlier_turns_may_have_several_lines_and_begin_with_the_assistant():
    chat = build_chat("Why?", None, "Assistant: Welcome!\nUser: I'm deaf.\nI have a dog.\nAssistant: Hello!")
    assert chat == [
        {"role": "assistant", "content": "Welcome!"},
        {"role": "user", "content": "I'm deaf.\nI have a dog."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Why?"},
    ]
