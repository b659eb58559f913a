"""A server that speaks OpenAI's protocol and has no model: ``python -m benchmarks.answerer``.

It answers the questions of the failure agent over a real socket. An ``Answer`` decides what: the label of a case, so that one
can count questions without a model, or chance, which is the weakest model that there can be. It understands nothing.

    python -m benchmarks.answerer --port 8009 &
    diagnose eval CORPUS --llm http://127.0.0.1:8009/v1     # what a model does that knows nothing
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from diagnose.accuracy import Label
from diagnose.knowledge.taxonomy import shipped_taxonomy

Answer = Callable[[dict[str, str], int], dict[str, Any]]
"""(the lines that are shown, by id, number of the sample) -> an answer to ``failure-cause``"""
_LINES = re.compile(r"^(L\d+)\| (.*)$", re.MULTILINE)
_READS = {"why": "What is shown is enough.", "reads": []}


class Answerer:
    """The server. Use it with ``with``. ``answer`` may be changed at any time; ``asked`` counts requests by their prompt."""

    def __init__(self, answer: Answer, *, port: int = 0, name: str = "answerer") -> None:
        self.answer, self.name = answer, name
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        answerer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def do_GET(self) -> None:
                self._write({"object": "list", "data": [{"id": answerer.name, "object": "model"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "messages" in body:
                    self._write(answerer._completion(body))
                else:
                    self.send_error(404)  # it counts no tokens

            def _write(self, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self) -> None:
        """Serve until it is interrupted."""
        self._server.serve_forever()

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        said = body["messages"][-1]["content"]
        prompt = body["response_format"]["json_schema"]["name"]
        with self._lock:
            self.asked[prompt] += 1
        shown = dict(_LINES.findall(said.rsplit("<<<DATA", 1)[1]))
        texts = [json.dumps(_READS if prompt == "failure-read" else self.answer(shown, k)) for k in range(body.get("n", 1))]
        return {
            "object": "chat.completion",
            "model": self.name,
            "choices": [
                {"index": k, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                for k, text in enumerate(texts)
            ],
            "usage": {"prompt_tokens": len(said) // 4, "completion_tokens": sum(map(len, texts)) // 4},
        }


def said(
    verdict: str, root: str | None = None, reason: str = "", confidence: float = 0.9, needs: str | None = None
) -> dict[str, Any]:
    """An answer that fits the schema of ``failure-cause``."""
    hypothesis: dict[str, Any] = {
        "root_line": root,
        "reason": reason,
        "confidence": confidence,
        "evidence_lines": [],
        "suspects": {"nodes": [], "ranks": [], "gpus": []},
        "summary": "The line says so.",
        "mitigation": "See the line.",
    }
    return {
        "analysis": "No model wrote this.",
        "verdict": verdict,
        "hypotheses": [hypothesis] if root is not None else [],
        "needs": needs,
    }


def by_label(label: Label, wrong: random.Random | None = None, share: float = 0.0) -> Answer:
    """The answer that the label of a case gives; a share of the cases gets another reason in all samples."""
    reasons = [reason for reason in shipped_taxonomy().category_of if reason not in ("healthy", "unknown", label.reason)]
    reason = wrong.choice(reasons) if wrong is not None and wrong.random() < share else label.reason

    def answer(shown: dict[str, str], _: int) -> dict[str, Any]:
        if reason == "healthy":
            return said("finished_well")
        if reason == "unknown" or label.root_cause_line is None:
            return said("cannot_tell", needs="What ended it.")
        source, line = label.root_cause_line
        at = re.compile(
            rf"(?:{re.escape(source.rsplit('/', 1)[-1])}:|line ){line}[ :]" if source else rf"(?:line |:){line}[ :]"
        )
        root = next((name for name, text in shown.items() if at.search(text[:200])), None)
        return said("failed", root, reason) if root is not None else said("cannot_tell", needs="The line that began it.")

    return answer


def by_chance(seed: int, *, alike: bool = False) -> Answer:
    """Any line, any reason, any confidence. ``alike``: all samples of a question say the same, as if sure of it."""
    drawn = random.Random(seed)
    reasons = [reason for reason in shipped_taxonomy().category_of if reason != "healthy"]

    def answer(shown: dict[str, str], _: int) -> dict[str, Any]:
        chance = random.Random(f"{seed} {sorted(shown.items())}") if alike else drawn
        verdict = chance.choices(("failed", "finished_well", "cannot_tell"), (8, 1, 1))[0]
        if verdict != "failed" or not shown:
            return said("finished_well" if verdict == "finished_well" else "cannot_tell", needs="More.")
        return said("failed", chance.choice(list(shown)), chance.choice(reasons), round(chance.uniform(0.5, 1.0), 2))

    return answer


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alike", action="store_true", help="the same in all samples of a question")
    parser.add_argument("--port", type=int, default=8009)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    Answerer(by_chance(chosen.seed, alike=chosen.alike), port=chosen.port).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
