"""The native core under AddressSanitizer and UBSan: its own tests, and what was damaged at random."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.matching.databases import core
from tests.support import core_fuzzing, sanitized

pytestmark = [pytest.mark.server, pytest.mark.timeout(900), pytest.mark.skipif(core is None, reason="no native core here")]
FUZZING_S = 25
CONTROL = "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; ctypes.memset(c.malloc(8), 0, 9)"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if absent := sanitized.missing():
        pytest.skip(absent)
    return sanitized.build(tmp_path_factory.mktemp("core"))


def test_a_byte_behind_its_memory_would_be_noticed(checked: Path) -> None:
    assert b"__asan_report_load1" in checked.read_bytes()
    done = sanitized.run("-c", CONTROL, core=checked, timeout=60)
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr


def test_its_own_tests_pass_with_each_access_checked(checked: Path) -> None:
    suite = [
        "tests/diagnose/matching",
        "tests/diagnose/compression/test_folds.py",
        "tests/diagnose/compression/test_numbers.py",
    ]
    words = ["-m", "pytest", "-p", "tests.support.sanitized", "-p", "no:cacheprovider", "-q", "-m", "not server", *suite]
    # What the core has no part in is left out.
    words += ["-k", "not (wheel and not core)", "--ignore", "tests/diagnose/matching/test_shapes.py"]
    # Few examples of each property: what is random is the next test's.
    done = sanitized.run(*words, core=checked, timeout=800, HYPOTHESIS_PROFILE="quick")
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def test_what_was_damaged_breaks_nothing(checked: Path) -> None:
    done = sanitized.run("-m", "tests.support.core_fuzzing", str(FUZZING_S), "1", core=checked, timeout=400)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert done.stdout.count("nothing found") == len(core_fuzzing.PARTS)
