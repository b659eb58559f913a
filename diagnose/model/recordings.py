"""Earlier answers: the cache, and the folders for recording and replaying questions.

There is one file per question, named by ``Ask.key``. A person may write one by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from diagnose import cache
from diagnose.errors import DiagnoseError
from diagnose.model.answers import Ask, Choice
from diagnose.model.budget import Tally
from diagnose.model.protocol import clean, messages_of, vectors_in

RECORD_FORMAT = "diagnose.ask/1"

_RECORD_BYTES = 64 * 1024 * 1024


def fetch(ask: Ask, model: str) -> list[Choice] | None:
    """The samples in the cache; None if it has none."""
    data = cache.fetch("answer", cache.key_of(ask.key, model))
    if data is None:
        return None
    try:
        texts = json.loads(data)
    except ValueError:
        return None
    return [Choice(text, "stop") for text in texts] if isinstance(texts, list) else None


def store(ask: Ask, model: str, choices: list[Choice]) -> None:
    """Put the samples into the cache, for the same question to the same model."""
    texts = json.dumps([choice.text for choice in choices])
    cache.store("answer", cache.key_of(ask.key, model), texts.encode())


def folder_for(path: Path | str, use: str) -> Path:
    """The folder for ``use``: made for "record", must exist for "replay"."""
    folder = Path(path)
    if use == "record":
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            remedy = "name a folder that can be written"
            raise DiagnoseError(f"cannot be made ({error.strerror})", where=str(folder), remedy=remedy) from error
    elif not folder.is_dir():
        raise DiagnoseError("no such folder", where=str(folder), remedy="name one that was written with --record")
    return folder


def read_answers(folder: Path, ask: Ask) -> tuple[list[Choice], list[str], Any]:
    """(what was recorded, why there is nothing, which model is named as the author)."""
    path = folder / f"{ask.key}.json"
    recorded = _read_json(path)
    if isinstance(recorded, str):
        return [], [f"no recorded answer to {ask.prompt}: {recorded}; wanted is {path}"], None
    answers = recorded.get("answers")
    choices = _recorded_choices(answers, recorded.get("finish")) if isinstance(answers, list) else []
    problems = [] if choices else [f"no recorded answer to {ask.prompt}: it has no answers; wanted is {path}"]
    return choices[: ask.n], problems, recorded.get("model")


def write_answers(
    folder: Path,
    ask: Ask,
    choices: list[Choice],
    problems: list[str],
    tally: Tally,
    model: Any,
    seconds: float,
    *,
    keep: bool,
) -> str | None:
    """Write question and answers. Returns why it could not."""
    path = folder / f"{ask.key}.json"
    content = {
        "format": RECORD_FORMAT,
        "key": ask.key,
        "prompt": ask.prompt,
        "version": ask.version,
        "model": model,
        "messages": messages_of(ask),
        "schema": ask.schema,
        "n": ask.n,
        "temperature": ask.temperature,
        "seed": ask.seed,
        "max_tokens": ask.max_tokens,
        "answers": [choice.text if choice.text is None else clean(choice.text) for choice in choices],
        "finish": [choice.finish for choice in choices],
        "problems": problems,
        "tokens_in": tally.tokens_in,
        "tokens_out": tally.tokens_out,
        "seconds": round(seconds, 3),
    }
    try:
        _write_json(path, content, keep=keep)
    except OSError as error:
        return f"the answer could not be recorded: {path}: {error.strerror}"
    return None


def read_embeddings(folder: Path, texts: list[str]) -> list[list[float]] | None:
    recorded = _read_json(_embeddings_path(folder, texts))
    return vectors_in(recorded.get("vectors"), len(texts)) if isinstance(recorded, dict) else None


def write_embeddings(folder: Path, texts: list[str], vectors: list[list[float]] | None) -> None:
    with contextlib.suppress(OSError):  # the caller goes on; ask() says if the folder cannot be written
        _write_json(_embeddings_path(folder, texts), {"format": RECORD_FORMAT, "texts": texts, "vectors": vectors})


def _embeddings_path(folder: Path, texts: list[str]) -> Path:
    return folder / f"embed-{hashlib.sha256(json.dumps(texts).encode()).hexdigest()}.json"


def _recorded_choices(answers: list[Any], finish: Any) -> list[Choice]:
    """Answers as recorded: texts, or objects if a person wrote them."""
    reasons = finish if isinstance(finish, list) and len(finish) == len(answers) else [None] * len(answers)
    choices = []
    for answer, reason in zip(answers, reasons, strict=True):
        text = json.dumps(answer) if isinstance(answer, dict) else answer if isinstance(answer, str) else None
        choices.append(Choice(text, reason if isinstance(reason, str) else None))
    return choices


def _read_json(path: Path) -> dict[str, Any] | str:
    """The object in a file, or what is wrong with it."""
    try:
        if path.stat().st_size > _RECORD_BYTES:
            return "the file is too large"
        content = json.loads(path.read_bytes())
    except OSError as error:
        return "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    except (ValueError, RecursionError):
        return "the file is no JSON"
    return content if isinstance(content, dict) else "the file is no JSON object"


def _write_json(path: Path, content: dict[str, Any], *, keep: bool = False) -> None:
    """Write the file whole or not at all. With ``keep``, a file that has answers is left as it is."""
    if keep and isinstance(there := _read_json(path), dict) and there.get("answers"):
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:16]}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
            file.write("\n")
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
