"""Texts by decoders of Hugging Face's exporter: `python -m bench.generation FOLDER`.

    python -m bench.generation FOLDER --make      write the models first; needs optimum-onnx and transformers

A folder of models as `optimum-cli export onnx` writes them: model.onnx, or encoder_model.onnx and
decoder_model_merged.onnx, whose If tells a prompt from a token. Each library is alone in its process, by
turns. What is told are ratios, medians over pairs of processes: of loading and the first text, with no kernel
on disk; of a text once the same was said before; of texts whose prompts have lengths that were not met; and
MiB more than onnxruntime's process has in the end. Both must say the same words.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.alone import loader, resident
from bench.measure import geometric_mean
from bench.processes import told_by

TOKENS = 40
PROMPTS = 13, 5, 21, 34, 9, 17, 40, 11
KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
WORDS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.generation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true", help="write the models into the folder first")
    parser.add_argument("--width", type=int, default=64, help="of the models (default: %(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 0])
    parser.add_argument("--pairs", type=int, default=3, help="of processes (default: %(default)s)")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        print(json.dumps(worker(asked.worker, asked.folder, asked.threads[0])))
        return
    if asked.make:
        make(asked.folder, asked.width)
    for threads in asked.threads:
        heads = "".join(f"{word:>10}" for word in ("first", "again", "lengths", "MiB"))
        print(f"\n{'threads: ' + (str(threads) if threads else 'default'):20}{heads}")
        found = []
        for model in sorted(m for m in asked.folder.iterdir() if asked.only in m.name):
            found.append(one := compared(model, threads, asked.pairs))
            print(f"{model.name:20}" + "".join(f"{x:10.2f}" for x in one[:3]) + f"{one[3]:10.0f}", flush=True)
        means = (geometric_mean([row[k] for row in found]) for k in range(3))
        print(f"{'geometric mean':20}" + "".join(f"{x:10.2f}" for x in means))


def compared(model: Path, threads: int, pairs: int) -> tuple[float, float, float, float]:
    """First text, the same again, other lengths, as ratios; and MiB more."""
    told: dict[str, list[dict[str, Any]]] = {"anydml": [], "onnxruntime": []}
    for _ in range(pairs):
        for name, results in told.items():
            asked = "--worker", name, str(model), "--threads", str(threads)
            results.append(told_by("bench.generation", *asked))
    both = list(zip(told["anydml"], told["onnxruntime"], strict=True))
    for ours, theirs in both:
        assert ours["words"] == theirs["words"], model
    first, again, lengths = (median(a[k] / b[k] for a, b in both) for k in ("first", "again", "lengths"))
    return first, again, lengths, median(a["memory"] - b["memory"] for a, b in both)


def worker(name: str, model: Path, threads: int) -> dict[str, Any]:
    """What one library takes, in seconds, and the words of the last text."""
    load = loader(name, threads)
    start = time.perf_counter()
    text = Text(model, load)
    text.words(8)
    first = time.perf_counter() - start
    for _ in range(3):
        text.words(8)
    again = median(_seconds(text, 8) for _ in range(5))
    lengths = sum(_seconds(text, prompt) for prompt in PROMPTS)
    return {
        "first": first,
        "again": again,
        "lengths": lengths,
        "memory": resident(),
        "words": text.words(8),
    }


def _seconds(text: Text, prompt: int) -> float:
    start = time.perf_counter()
    text.words(prompt)
    return time.perf_counter() - start


class Text:
    """Says the likeliest word, again and again."""

    def __init__(self, folder: Path, load: Any) -> None:
        encoder = folder / "encoder_model.onnx"
        self._encoder = load(str(encoder)) if encoder.exists() else None
        decoder = "model.onnx" if self._encoder is None else "decoder_model_merged.onnx"
        self._decoder = load(str(folder / decoder))
        self._inputs = {i.name: i for i in self._decoder.get_inputs()}
        self._outputs = [o.name for o in self._decoder.get_outputs()]

    def words(self, prompt: int) -> list[int]:
        rng = np.random.default_rng(prompt)
        fixed: dict[str, Any] = {}
        ids = rng.integers(1, WORDS - 1, (1, prompt))
        if self._encoder is not None:
            fixed, ids = self._encoded(rng, ids), np.array([[3]])
        past, count, said = {n: self._nothing(n) for n in self._inputs if "past" in n}, 0, []
        for k in range(TOKENS):
            total = count + ids.shape[1]
            could = {
                "input_ids": ids,
                "attention_mask": np.ones((1, total), np.int64),
                "position_ids": np.arange(count, total)[None],
                "use_cache_branch": np.array([k > 0]),
            }
            feeds = {**fixed, **past, **{n: x for n, x in could.items() if n in self._inputs}}
            results = dict(zip(self._outputs, self._decoder.run(None, feeds), strict=True))
            past |= self._grown(results, k)
            said.append(int(results["logits"][0, -1].argmax()))
            ids, count = np.array([[said[-1]]]), total
        return said

    def _encoded(self, rng: np.random.Generator, ids: Any) -> dict[str, Any]:
        assert self._encoder is not None
        mask = np.ones(ids.shape, np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask}
        if any(i.name == "input_features" for i in self._encoder.get_inputs()):
            feeds = {"input_features": rng.standard_normal((1, 80, 3000)).astype(np.float32)}
        found = {"encoder_hidden_states": self._encoder.run(None, feeds)[0], "encoder_attention_mask": mask}
        return {n: x for n, x in found.items() if n in self._inputs}

    def _nothing(self, name: str) -> Any:
        declared = self._inputs[name]
        sizes = [n if isinstance(n, int) else int(k == 0) for k, n in enumerate(declared.shape)]
        return np.zeros(sizes, KINDS[declared.type])

    def _grown(self, results: Mapping[str, Any], k: int) -> Iterator[tuple[str, Any]]:
        """What to feed next. What the encoder said is told once, with the prompt."""
        for name, x in results.items():
            if name.startswith("present") and not (k and ".encoder." in name):
                yield name.replace("present", "past_key_values"), x


def make(folder: Path, width: int) -> None:
    """Models of random weights, three layers, four heads, as `optimum` exports them."""
    import transformers as hf
    from optimum.exporters.onnx import onnx_export_from_model

    sizes = {"vocab_size": WORDS, "max_position_embeddings": 256, "num_attention_heads": 4}
    wide = sizes | {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": 3}
    pairs = {f"{side}_{part}": n for side in ("encoder", "decoder") for part, n in _PARTS.items()}
    pairs |= {f"{side}_ffn_dim": 4 * width for side in ("encoder", "decoder")}
    both = sizes | pairs | {"d_model": width}
    t5 = {"vocab_size": WORDS, "d_model": width, "d_kv": width // 4, "d_ff": 4 * width, "num_heads": 4}
    gpt = {"vocab_size": WORDS, "n_embd": width, "n_layer": 3, "n_head": 4, "n_positions": 256}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    hears = {"suppress_tokens": None, "begin_suppress_tokens": None, "max_target_positions": 128}
    models = {
        "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(**gpt), "text-generation"),
        "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**wide, num_key_value_heads=2), "text-generation"),
        "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**wide, num_key_value_heads=2), "text-generation"),
        "t5": (
            hf.T5ForConditionalGeneration,
            hf.T5Config(**t5, num_layers=3, decoder_start_token_id=0),
            "text2text-generation",
        ),
        "bart": (hf.BartForConditionalGeneration, hf.BartConfig(**both), "text2text-generation"),
        "marian": (hf.MarianMTModel, hf.MarianConfig(**both, **special), "text2text-generation"),
        "whisper": (
            hf.WhisperForConditionalGeneration,
            hf.WhisperConfig(**both, **special, **hears),
            "automatic-speech-recognition",
        ),
    }
    for name, (kind, config, task) in models.items():
        hf.set_seed(0)
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        onnx_export_from_model(
            kind(config).eval(), output=target, task=f"{task}-with-past", do_validation=False, monolith=False
        )


_PARTS = {"layers": 3, "attention_heads": 4}


if __name__ == "__main__":
    main()
