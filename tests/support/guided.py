"""The fuzzing of ``fuzzing``, led by what each body reaches in the code (atheris): whatever reaches more is changed further.

    pip install -e '.[fuzzing]'
    python -m tests.support.guided "loki labels" --seconds 600 --found FOLDER

Bodies that reached something new are kept in FOLDER, and are begun with the next time. Ends with the exception, and the body in
``crash-…``, where a parser raises anything but its refusal.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import atheris

with warnings.catch_warnings(), atheris.instrument_imports(include=["diagnose", "service"]):
    warnings.simplefilter("ignore")
    from tests.support import fuzzing


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("parser", choices=fuzzing.PARSERS)
    words.add_argument("--seconds", type=int, default=60)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--found", type=Path, required=True)
    asked = words.parse_args()
    parse, corpus = fuzzing.PARSERS[asked.parser]
    folder = asked.found / asked.parser.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for number, body in enumerate(corpus):
        (folder / f"begin-{number}").write_bytes(body)

    def one(body: bytes) -> None:
        try:
            parse(body)
        except fuzzing.REFUSALS:
            return

    limits = f"-max_total_time={asked.seconds}", f"-seed={asked.seed}", "-max_len=65536", "-timeout=30", "-rss_limit_mb=4096"
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={asked.found}/", str(folder)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
