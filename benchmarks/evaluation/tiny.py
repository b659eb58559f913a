"""A tiny model with random weights, and data sets made here, as lm-evaluation-harness reads them. Nothing is fetched."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WORDS = "node rank loss step gpu fan disk link heat clock queue shard red blue one two".split()


def write_model(folder: Path, *, layers: int = 2, width: int = 64, seed: int = 1) -> None:
    """A GPT-2 with random weights, the same for the same seed."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    letters = [chr(code) for code in range(32, 127)] + ["\n"]
    vocabulary = {"<end>": 0, **{letter: number + 1 for number, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made: Any = PreTrainedTokenizerFast
    fast = made(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<end>", bos_token="<end>")
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=512, n_embd=width, n_layer=layers, n_head=4, bos_token_id=0, eos_token_id=0
    )
    GPT2LMHeadModel(config).save_pretrained(folder)


def write_tasks(folder: Path, sizes: Sequence[int]) -> dict[str, int]:
    """Tasks of three kinds: a choice, a text to complete, and a text whose likelihood counts. Returns name -> samples."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for number, size in enumerate(sizes):
        name, kind = f"made{number}", ("choice", "complete", "likely")[number % 3]
        write_task(folder, name, kind, size, number)
        made[name] = size
    return made


def write_task(folder: Path, name: str, kind: str, size: int, seed: int, *, texts: int | None = None) -> None:
    """``texts``: a function KIND of ``checks.py`` scores each sample, by as many texts."""
    dice = random.Random(seed)
    rows = [_row(dice) for _ in range(size)]
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row | ({} if texts is None else {"texts": texts})) + "\n" for row in rows))
    task: dict[str, Any] = {"task": name, "dataset_path": "json", "test_split": "test"}
    task["dataset_kwargs"] = {"data_files": {"test": str(data)}}
    how, scored = _how(kind), ""
    if texts is not None:
        names = ("acc" if kind == "choice" else "exact_match", "nearest")
        how["metric_list"] = [{"metric": one, "aggregation": "mean", "higher_is_better": True} for one in names]
        scored = f', "process_results": !function checks.{kind}'
    (folder / f"{name}.yaml").write_text(json.dumps({**task, **how})[:-1] + scored + "}")


def _row(dice: random.Random) -> dict[str, object]:
    words = dice.sample(_WORDS, 6)
    return {"question": " ".join(words[:4]), "choices": words[2:6], "answer": dice.randrange(4), "text": " ".join(words)}


def _how(kind: str) -> dict[str, object]:
    match kind:
        case "choice":
            metrics = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
            return {
                "output_type": "multiple_choice",
                "doc_to_text": "{{question}}:",
                "doc_to_target": "{{answer}}",
                "doc_to_choice": "{{choices}}",
                "fewshot_split": "test",
                "num_fewshot": 2,
                "metric_list": metrics,
            }
        case "complete":
            return {
                "output_type": "generate_until",
                "doc_to_text": "{{question}}:",
                "doc_to_target": "{{choices[answer]}}",
                "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8, "do_sample": False},
                "metric_list": [
                    {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True},
                    {"metric": "chrf", "aggregation": "chrf", "higher_is_better": True},
                ],
            }
    return {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": name} for name in ("word_perplexity", "bits_per_byte")],
    }
