"""What happens to one job: a fault, on one of its ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """``kill-4-2``: rank 2 of 4 is killed."""

    fault: str
    ranks: int
    victim: int

    def __str__(self) -> str:
        return f"{self.fault}-{self.ranks}-{self.victim}"

    @classmethod
    def read(cls, text: str) -> Plan:
        fault, ranks, victim = text.split("-")
        return cls(fault, int(ranks), int(victim))
