"""Questions of other agents in (Model Context Protocol); reports, lines and history out, without secrets. It only reads.

It needs the extra ``mcp``. Without this folder everything else works.
"""

__all__ = ["cluster", "logs", "server"]
