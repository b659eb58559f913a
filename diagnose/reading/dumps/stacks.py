"""What a stack dump holds, whichever tool wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Tool = Literal["py-spy", "faulthandler", "gdb", "eu-stack", "jstack"]

MOST_FRAMES = 200
"""frames of one thread; if there are more, the innermost and the outermost"""
MOST_THREADS = 2_000
"""threads of one dump"""
LONGEST_NAME = 200
"""letters in the name of a function or file"""


@dataclass(frozen=True, slots=True)
class Frame:
    """One call."""

    function: str
    file: str = ""
    """the source file, else the shared library; empty if the tool does not say"""
    line: int | None = None

    @property
    def library(self) -> bool:
        """Whether it is installed or compiled code, not code of the job."""
        if not self.file.endswith(".py") or self.line is None:
            return True
        parts = ("site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>")
        if any(part in self.file for part in parts):
            return True
        # py-spy shortens the path of an imported module to the part after the folder of modules.
        first = self.file.split("/")[0]
        return first in _PACKAGES or (first in _STANDARD and "/" not in self.file)


_PACKAGES = frozenset(
    "accelerate apex asyncio concurrent dask datasets deepspeed fairscale flash_attn flax fsspec horovod huggingface_hub "
    "importlib jax jaxlib lightning logging megatron multiprocessing numpy pandas peft pyarrow pytorch_lightning ray s3fs "
    "safetensors tensorflow torch torch_npu torchvision transformer_engine transformers triton trl urllib3 vllm wandb "
    "xformers".split()
)
_STANDARD = frozenset(
    "contextlib.py functools.py queue.py runpy.py selectors.py shutil.py signal.py socket.py ssl.py subprocess.py "
    "tempfile.py threading.py".split()
)


@dataclass(slots=True)
class Thread:
    """One thread with its calls, the innermost first."""

    name: str
    ident: str
    line: int
    """of its header"""
    state: str = ""
    """in the tool's words: idle, active, BLOCKED"""
    frames: list[Frame] = field(default_factory=list)
    number: int | None = None
    """gdb's"""
    lines: list[int] = field(default_factory=list)
    """of its frames"""

    def add(self, frame: Frame, line: int) -> None:
        """The next frame further out."""
        if len(self.frames) >= MOST_FRAMES:
            del self.frames[MOST_FRAMES // 2], self.lines[MOST_FRAMES // 2]
        self.frames.append(frame)
        self.lines.append(line)


@dataclass(slots=True)
class StackDump:
    """What one tool said of one process at one moment."""

    tool: Tool
    line: int
    """where it begins"""
    pid: int | None = None
    command: str = ""
    why: str = ""
    """what the process died of, or what ran out, according to the dump"""
    crashed: bool = False
    """the process was dying or dead when its stacks were written, so the dump does not say that it stood still"""
    threads: list[Thread] = field(default_factory=list)
    dropped: int = 0
    """threads that were not read"""
    deadlock: bool = False
    """the tool itself found one"""

    @property
    def main(self) -> Thread | None:
        """The thread that runs the program."""
        filled = [thread for thread in self.threads if thread.frames]
        for thread in filled:
            if thread.name in ("MainThread", "main") or thread.number == 1:
                return thread
            if self.pid is not None and thread.ident == str(self.pid):
                return thread
        if not filled:
            return None
        # The interpreter lists its threads from the newest to the oldest. Other tools begin with the oldest.
        return filled[-1] if self.tool == "faulthandler" else filled[0]
