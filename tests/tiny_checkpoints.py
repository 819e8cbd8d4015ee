"""Checkpoints as the hub has them, tiny and of random weights: each family's files, special tokens and template."""

import json

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

# The labels of SamLowe/roberta-base-go_emotions, in its order: the 27 emotions of GoEmotions and neutral.
EMOTIONS = """
    admiration amusement anger annoyance approval caring confusion curiosity desire disappointment disapproval disgust
    embarrassment excitement fear gratitude grief joy love nervousness optimism pride realization relief remorse sadness
    surprise neutral
""".split()  # noqa: SIM905
# On the hub, DialoGPT's tokenizer has this template, and Qwen3's renders a chat of one turn as this one does.
TURNS_ENDED_BY_EOS = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
TURNS = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
CHAT_THAT_CAN_THINK = TURNS + (
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
CHAT_THAT_THINKS = TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
# As Llama 3.2's: a system message there always is, and it begins with the day.
CHAT_ON_A_DAY = (
    "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{% if messages[0].role == 'system' %}{% set text, rest = messages[0].content, messages[1:] %}"
    "{% else %}{% set text, rest = '', messages %}{% endif %}"
    "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string }}\n\n{{ text }}<|eot_id|>"
    "{% for message in rest %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# As Gemma's, which refuses a system message up to Gemma 2; that of 3 writes it before the user's, as is done here.
CHAT_WITHOUT_SYSTEM = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ message.content }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def byte_level_bpe(special_tokens, prefix_space=False):
    """Return a byte-level BPE that was trained on a line of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special_tokens,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["I'm a grandmother. I like people with a disability. bias no_bias"], trainer)
    return tokenizer


def save_tokenizer(folder, special_tokens, prefix_space=False, **settings):
    """Write a tokenizer in the format of GPT-2 on the hub: vocab.json and merges.txt, no tokenizer.json."""
    model = json.loads(byte_level_bpe(special_tokens, prefix_space).to_str())["model"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in model["merges"]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix_space, **settings}))
    return len(model["vocab"])


def save_tokenizer_with_bos(folder, special_tokens, *, further=(), **settings):
    """Write a tokenizer as Llama 3's and Gemma's, which adds the first special token, BOS, before a text.

    `further` special tokens stand behind all others, and are not counted in the size that is returned.
    """
    tokenizer = byte_level_bpe(special_tokens)
    bos, size = special_tokens[0], tokenizer.get_vocab_size()
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, 0)])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in further])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, **settings).save_pretrained(folder)
    return size


def save_model(folder, model, scale=4, **saving):
    """Write a model that tells texts apart: its weights are `scale` times those at the start of a training."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    model.save_pretrained(folder, **saving)
    return folder


def dialogpt(folder):
    end = "<|endoftext|>"
    size = save_tokenizer(
        folder, [end], tokenizer_class="GPT2Tokenizer", eos_token=end, bos_token=end, unk_token=end,
        model_max_length=1024, chat_template=TURNS_ENDED_BY_EOS,
    )  # fmt: skip
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 1024}
    return save_model(
        folder,
        transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=size, **sizes, bos_token_id=0, eos_token_id=0)),
    )


def blenderbot(folder):
    # Without <mask>, which the tokenizer then adds behind the last token that the model knows, as on the hub.
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    size = save_tokenizer(
        folder, special, prefix_space=True, tokenizer_class="BlenderbotTokenizer", model_max_length=128
    )
    sizes = dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 32)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    ids = {"bos_token_id": 1, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    layers = {"encoder_layers": 2, "decoder_layers": 2}
    config = transformers.BlenderbotConfig(vocab_size=size, **layers, **sizes, **ids, scale_embedding=True)
    model = transformers.BlenderbotForConditionalGeneration(config)
    model.generation_config.update(num_beams=10, encoder_no_repeat_ngram_size=3, forced_eos_token_id=2)  # as the hub's
    return save_model(folder, model)


SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 16}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def qwen(folder, **saving):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    size = save_tokenizer(
        folder, special, tokenizer_class="Qwen2Tokenizer", eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=special[1:], model_max_length=131072, chat_template=CHAT_THAT_CAN_THINK,
    )  # fmt: skip
    config = transformers.Qwen3Config(
        vocab_size=size, **SIZES, **HEADS, tie_word_embeddings=True, eos_token_id=2, bos_token_id=0
    )
    model = transformers.Qwen3ForCausalLM(config)
    model.generation_config.update(do_sample=True, temperature=0.6, top_k=20, eos_token_id=[2, 0], pad_token_id=0)
    return save_model(folder, model, **saving)


def llama(folder):
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    size = save_tokenizer_with_bos(folder, special, eos_token="<|eot_id|>", chat_template=CHAT_ON_A_DAY)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=size, **SIZES, **HEADS, tie_word_embeddings=True, eos_token_id=4)
    )
    model.generation_config.update(do_sample=True, temperature=0.6, top_p=0.9, eos_token_id=[1, 4], bos_token_id=0)
    return save_model(folder, model)


def gguf(folder, architecture="llama"):
    """Write a tiny chat model of Llama's architecture to a GGUF file; return the file's path."""
    from gguf import GGUFWriter

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = json.loads(byte_level_bpe(special).to_str())["model"]
    config = transformers.LlamaConfig(vocab_size=len(tokenizer["vocab"]), **SIZES, **HEADS, tie_word_embeddings=True)
    weights = transformers.LlamaForCausalLM(config).state_dict()
    folder.mkdir(exist_ok=True)
    writer = GGUFWriter(folder / "tiny.gguf", architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(tokenizer["vocab"]))
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["merges"]])
    writer.add_token_types([3 if token in special else 1 for token in tokenizer["vocab"]])  # 3: control, 1: normal
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_chat_template(CHAT_THAT_CAN_THINK)
    for name, weight in weights.items():
        if name != "lm_head.weight":
            scaled = weight * (4 if weight.dim() > 1 else 1)
            writer.add_tensor(_gguf_name(name), _llama_cpp_order(name, scaled, config).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "tiny.gguf"


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.layers": "blk", "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}  # fmt: skip


def _gguf_name(name):
    for ours, theirs in GGUF_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def _llama_cpp_order(name, weight, config):
    """Return a weight in llama.cpp's order of rotary dimensions: each pair of halves side by side."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if heads is None:
        return weight
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def base_without_template(folder):
    size = save_tokenizer_with_bos(folder, ["<|begin_of_text|>", "<|end_of_text|>"], eos_token="<|end_of_text|>")
    return save_model(
        folder,
        transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=size, **SIZES, **HEADS, eos_token_id=1)),
    )


def gemma(folder):
    special = ["<bos>", "<pad>", "<eos>", "<start_of_turn>", "<end_of_turn>"]
    tokens = {"eos_token": "<eos>", "pad_token": "<pad>", "chat_template": CHAT_WITHOUT_SYSTEM}
    # As Gemma 3's, with a token for images that a model of text alone does not know.
    size = save_tokenizer_with_bos(folder, special, further=["<image_soft_token>"], **tokens)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    model = transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(vocab_size=size, **SIZES, **HEADS, **ids, sliding_window=16)
    )
    model.generation_config.update(do_sample=True, top_k=64, top_p=0.95, eos_token_id=[2, 4])
    return save_model(folder, model)


def thinker(folder):
    """As R1's distills: the template begins a thought, which here ends at every token with the same good chance."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "</think>"]
    size = save_tokenizer(
        folder, special, tokenizer_class="Qwen2Tokenizer", eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=special[1:], chat_template=CHAT_THAT_THINKS,
    )  # fmt: skip
    sizes = {name: value for name, value in SIZES.items() if name != "head_dim"}
    model = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(vocab_size=size, **sizes, **HEADS, tie_word_embeddings=False, eos_token_id=2)
    )
    save_model(folder, model)
    with torch.no_grad():  # one direction of all hidden states that the end of a thought alone is read from
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[special.index("</think>"), 0] = 2.0
    model.save_pretrained(folder)
    return folder


def style_classifier(folder, styles=EMOTIONS):
    size = save_tokenizer(
        folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], tokenizer_class="RobertaTokenizer", model_max_length=512
    )
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.RobertaConfig(
        vocab_size=size,
        **sizes,
        max_position_embeddings=514,
        id2label=dict(enumerate(styles)),
        problem_type="multi_label_classification",
    )
    return save_model(folder, transformers.RobertaForSequenceClassification(config), scale=30)


def taxonomy(folder):
    """Write a taxonomy of seven descriptors on two axes, six nouns and two templates; return the folder."""
    behind = {"noun_phrase": "{article} {noun} who stutters", "plural_noun_phrase": "{article} {noun} who stutter"}
    people = [["woman", "women"], ["friend", "friends"], ["person", "people"]]
    files = {
        "descriptors": {"ability": {"all": ["deaf", "blind", "dyslexic"]}, "age": {"all": ["old", "young", "retired"]}},
        "nouns": {"neutral": [*people, ["kid", "kids"], ["adult", "adults"], ["teen", "teens"]]},
        "sentence_templates": {"I'm {noun_phrase}.": {}, "I like {plural_noun_phrase}.": {"must_be_noun": True}},
        "standalone_noun_phrases": {"ability": [behind]},
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
