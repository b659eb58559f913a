"""For trainings that have a writer already: verify, good, kept and when around *their* checkpoints.

    beside          what all have in common; free of any trainer
    transformers    the callback for the Trainer of Hugging Face
    lightning       the callback for Lightning
    deepspeed       around an engine of DeepSpeed
    torchtitan      around the checkpointer of torchtitan
    megatron        around the training loop of Megatron-LM

Each imports its trainer, which is not a dependency: who has it, has it.
"""

from __future__ import annotations

__all__ = ["beside", "deepspeed", "lightning", "megatron", "torchtitan", "transformers"]
