"""Pieces of work: what runs as one command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Some samples of a data set, one after the other."""

    dataset: str
    first: int
    count: int

    @property
    def key(self) -> str:
        return f"{self.dataset}/{self.first}-{self.count}"


@dataclass(frozen=True, slots=True)
class Load:
    """Bring the model into the memory of a node."""

    node: str

    @property
    def key(self) -> str:
        return f"load/{self.node}"


@dataclass(frozen=True, slots=True)
class Trial:
    """Run the model over one shard, or over several data sets that are short."""

    shards: tuple[Shard, ...]

    @property
    def key(self) -> str:
        return "trial/" + "+".join(shard.key for shard in self.shards)


@dataclass(frozen=True, slots=True)
class Scoring:
    """Score samples of a data set. If the metric cannot be split, these are all of them."""

    shard: Shard

    @property
    def key(self) -> str:
        return f"metric/{self.shard.key}"


Piece = Load | Trial | Scoring


def shards_of(piece: Trial | Scoring) -> tuple[Shard, ...]:
    return piece.shards if isinstance(piece, Trial) else (piece.shard,)
