"""diagnose: LLM-assisted log diagnosis and recovery for GPU clusters that train large language models."""

from __future__ import annotations

__version__ = "0.1.0"
