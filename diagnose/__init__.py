"""diagnose: log diagnosis and recovery for GPU clusters that train large language models.

The folders follow the path of the data. Read ``job.py`` first: it is the whole path for one job.

    reading         bytes -> lines
    matching        lines -> verdicts and numbers      (by the rules of ``knowledge``)
    compression     verdicts -> kept lines
    diagnosis       kept lines -> root cause
    decision        root cause, past, policy -> action
    job             the first four, put together, with the usual action

Beside the path:

    knowledge       rules, reasons, shipped documents
    verification    a rule -> objections
    redaction       text -> text without secrets
    model  agent    how a model is asked; what it is asked about failures
    learning        unknown lines -> learned rules
    accuracy        labelled cases -> how often we are right
    checkpoints     checkpoints of a training -> which are whole, and where to start again
    nodecheck       nodes -> which one is bad
    shipping        logs -> a service
    comparison      a good run and a bad one -> what differs
    evaluate        checkpoints and data sets -> scores, sooner
    mcp             questions of other agents -> reports, lines, history
    rendering       a report -> text, Markdown, HTML
    cli             one module per command
    client          what training scripts call; standard library only
    ready           the shipped rules -> what a first run would have to work out
    report  errors  cache  memory  packed  folder_lock  backoff  quantities    what all others use

Which package may import which is in pyproject.toml (``tool.importlinter``). ``./test`` checks it. A package's ``__all__`` names
the modules that other packages may use.
"""

from __future__ import annotations

__version__ = "0.1.0"
