"""What training scripts report, and what they ask."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies.common import MOST, Sent, Text


class Saved(Sent):
    """A checkpoint, complete on storage."""

    model_config = ConfigDict(extra="ignore")
    step: int = Field(ge=0, le=MOST, description="Steps done", examples=[1200])
    path: Text = Field(min_length=1, max_length=4096, examples=["/ckpt/step1200"])
    healthy: bool | None = Field(None, description="false: known to be bad; null: nobody looked")
    why: Text | None = Field(None, max_length=500, description="Why it is healthy, or not", examples=["__1_0.distcp is cut"])
    cost_s: float | None = Field(None, ge=0, le=1e6, description="Time that the training lost by it", examples=[0.8])
    attempt: int | None = Field(
        None, ge=0, le=1_000_000, description="The run of this job; the latest, or 1, if it is not given"
    )
    time: float | None = Field(None, ge=0, le=4e9)


class Progress(Sent):
    model_config = ConfigDict(extra="ignore")
    step: int = Field(ge=0, le=MOST, examples=[1234])
    loss: float | None = Field(None, allow_inf_nan=False, examples=[2.31])
    loss_is: Literal["nan", "inf", "-inf"] | None = Field(None, description="Where the loss is not a number")
    attempt: int | None = Field(None, ge=0, le=1_000_000)
    time: float | None = Field(None, ge=0, le=4e9)


class Score(Sent):
    """What an evaluation says of a checkpoint."""

    model_config = ConfigDict(extra="ignore")
    step: int = Field(ge=0, le=MOST, description="Of the checkpoint: steps done", examples=[1200])
    data_set: Text = Field(min_length=1, max_length=200, examples=["arc_easy"])
    metric: Text = Field("score", min_length=1, max_length=200, examples=["accuracy"])
    score: float = Field(allow_inf_nan=False, examples=[0.712])
    noise: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Standard deviation of the score by the choice of samples; without it nothing is concluded",
        examples=[0.009],
    )
    direction: Literal["higher", "lower"] = Field("higher", description="Which is better")
    path: Text | None = Field(None, min_length=1, max_length=4096, description="Of the checkpoint, as it was reported")
    attempt: int | None = Field(
        None, ge=0, le=1_000_000, description="Which saved it; else the latest that reported a checkpoint of this step"
    )
    time: float | None = Field(None, ge=0, le=4e9)


class Evaluated(Sent):
    """A checkpoint was evaluated on all data sets. Seconds of all places together; they add up to the places times took_s."""

    model_config = ConfigDict(extra="ignore")
    step: int = Field(ge=0, le=MOST, description="Of the checkpoint: steps done", examples=[1200])
    data_sets: int = Field(ge=0, le=1_000_000, description="That have scores", examples=[63])
    missing: int = Field(0, ge=0, le=1_000_000, description="Data sets without scores")
    took_s: float = Field(ge=0, le=4e9, allow_inf_nan=False, description="From begin to end", examples=[1830.0])
    expected_s: float | None = Field(None, ge=0, le=4e9, allow_inf_nan=False, description="What the plan said")
    loading_s: float = Field(0, ge=0, le=4e12, allow_inf_nan=False, description="Places loaded the model")
    inference_s: float = Field(0, ge=0, le=4e12, allow_inf_nan=False, description="Places ran the model")
    metric_s: float = Field(0, ge=0, le=4e12, allow_inf_nan=False, description="Metrics ran, beside the places")
    failed_s: float = Field(0, ge=0, le=4e12, allow_inf_nan=False, description="Places ran what failed")
    waiting_s: float = Field(0, ge=0, le=4e12, allow_inf_nan=False, description="Places waited")
    path: Text | None = Field(None, min_length=1, max_length=4096, description="Of the checkpoint, as it was reported")
    attempt: int | None = Field(
        None, ge=0, le=1_000_000, description="Which saved it; else the latest that reported a checkpoint of this step"
    )
    time: float | None = Field(None, ge=0, le=4e9)


class Reported(BaseModel):
    job: str
    attempt: int
    stored: bool


class Alarm(BaseModel):
    step: int
    """that the training had reached"""
    kind: Literal["loss", "hang", "hardware", "score"]
    """loss: what was saved after it is spoilt, and a roll-back waits; score: that of the checkpoint of this step fell"""
    why: str
    path: str | None
    """of the checkpoint, for a score"""


class Progressed(Reported):
    save: str | None
    """why a checkpoint is wanted now: an action waits that will end this attempt"""
    alarms: list[Alarm]
    """of this attempt, the latest"""
    between_failures_s: float | None
    """how long a job of this size runs between failures, by the history here; null: nobody said how many GPUs it has"""


class Scored(Reported):
    good: bool | None
    """what the checkpoint is held for, with this score"""
    why: str | None


class ScoreRow(BaseModel):
    data_set: str
    metric: str
    score: float
    noise: float | None
    direction: Literal["higher", "lower"]
    at: float | None


class JudgedCheckpoint(BaseModel):
    attempt: int
    step: int
    path: str
    at: float | None
    good: bool | None
    """false: no attempt starts from it; null: nobody knows yet"""
    why: str | None
    scores: list[ScoreRow]
    """at most 200, by data set"""


class Pace(BaseModel):
    """What the present interval between checkpoints costs, and what the best one would."""

    interval_s: float
    cost_s: float
    """of one save"""
    cost_known: bool
    """false: the training does not say, and it is assumed"""
    between_failures_s: float
    lost: float
    """share of the time that is lost by saves, and by what is done again after failures"""
    best_s: float
    best_lost: float


class Checkpoints(BaseModel):
    job: str
    pace: Pace | None
    """of the latest attempt; null: it saved less than three, or nobody said how many GPUs it has"""
    checkpoints: list[JudgedCheckpoint]
    """of all attempts, the highest step first"""


class StacksWanted(BaseModel):
    job: str
    attempt: int
    wanted: bool
    """it runs and seems to stand still: where its processes stand would say why"""


class LatestProgress(BaseModel):
    attempt: int
    step: int
    loss: float | None
    loss_is: str | None
    at: float


class Resume(BaseModel):
    """Where the next attempt starts."""

    job: str
    attempt: int
    """the latest attempt"""
    step: int | None
    """steps done in the checkpoint; null: there is none that can be used"""
    path: str | None
    skip_batches: list[tuple[int, int]]
    """first and last number of batches to leave out; batch n is the one that step n trains on, from 0"""
    why: str
    actions: list[int]
    """the roll-backs that this answer follows"""
    proposed: list[int]
    """roll-backs that wait for approval and are not followed here"""
    progress: LatestProgress | None
