"""What trainings and evaluations report, and what they are told: one module per noun."""

from __future__ import annotations

from service.store.training import alarms as alarms
from service.store.training import checkpoints as checkpoints
from service.store.training import evaluations as evaluations
from service.store.training import rates as rates
from service.store.training import reports as reports
from service.store.training import scores as scores
from service.store.training import word as word
