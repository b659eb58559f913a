"""Weights in GGUF -> the folder that vLLM reads. run.py runs this with the Python of the server's own environment."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers


def unpack(gguf: Path, folder: Path) -> None:
    """Dense weights in bfloat16, the tokenizer and its chat template. The configuration does not mention the quantization."""
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    if not tokenizer.chat_template:
        raise SystemExit(f"{gguf.name} has no chat template")
    tokenizer.save_pretrained(folder)
    dense = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16, quantization_config=dense)
    model.save_pretrained(folder)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
