"""diagnose: log diagnosis and recovery for GPU clusters that train large language models.

The way of the data is the list of folders. Read ``job.py`` first: it is the whole path for one job, top to bottom.

    reading         bytes -> lines
    matching        lines -> verdicts and numbers      (by the rules of ``knowledge``)
    compression     verdicts -> kept lines
    diagnosis       kept lines -> root cause
    decision        root cause, past, policy -> action
    job             these five, put together

Beside the path:

    knowledge       rules, reasons, shipped documents
    verification    a rule -> objections
    redaction       text -> text without secrets
    model  agent    the door to a model; what it is asked about failures
    learning        unknown lines -> learned rules
    accuracy        labelled cases -> how often we are right
    nodecheck       nodes -> which one is bad
    shipping        logs -> a service
    rendering       a report -> text, Markdown, HTML
    cli             one module per command
    client          what training scripts call; standard library only
    ready           the shipped rules -> what a first run would have to work out
    report  errors  cache  folder_lock  backoff  quantities      what the others stand on

Who may import whom is written in pyproject.toml (``tool.importlinter``) and checked by ``./test``. A package's ``__all__``
names the modules that other packages may use.
"""

from __future__ import annotations

__version__ = "0.1.0"
