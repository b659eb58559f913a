"""Refusals that a client can act on: an HTTP status, what is wrong, and the remedy.

Raise where you know. ``app`` catches them all in one place and answers in one JSON form: ``{error, what, remedy}``.
"""

from __future__ import annotations

from diagnose.errors import DiagnoseError


class Refused(DiagnoseError):
    """A request that cannot be served. Programs can test ``error``, a name. ``what`` and ``remedy`` are sentences."""

    status = 400
    error = "bad_request"

    def __init__(
        self, what: str, *, where: str | None = None, remedy: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.retry_after_s = retry_after_s
        self.fields: dict[str, object] = {}
        """more for programs, such as ``expected_offset``"""


class BadName(Refused):
    """The name of a job, a source or a label cannot be used."""

    error = "bad_name"


class BadBody(Refused):
    """The body is not what its type says: cut off, damaged, or in the wrong encoding."""

    error = "bad_body"


class Unauthorised(Refused):
    status = 401
    error = "unauthorised"


class Forbidden(Refused):
    status = 403
    error = "forbidden"


class Unknown(Refused):
    """There is no such job, group or rule."""

    status = 404
    error = "not_found"


class OffsetGap(Refused):
    """Bytes of a source are missing between what was received and what was sent."""

    status = 409
    error = "offset_gap"

    def __init__(self, source: str, expected: int, given: int) -> None:
        super().__init__(
            f"the source was received up to byte {expected}, and this begins at {given}",
            where=source,
            remedy=f"send again from offset {expected}",
        )
        self.fields = {"expected_offset": expected}


class Conflict(Refused):
    status = 409
    error = "conflict"


class TooLarge(Refused):
    """A body, a line, a label or a number of sources is over its limit."""

    status = 413
    error = "too_large"


class Unsupported(Refused):
    """This content type or encoding is not supported."""

    status = 415
    error = "unsupported"


class Busy(Refused):
    """A queue is full or a quota is used up. Nothing was stored; try again later."""

    status = 429
    error = "busy"


class Unavailable(Refused):
    """The service cannot store at present: the disk is full, or it is shutting down."""

    status = 503
    error = "unavailable"
