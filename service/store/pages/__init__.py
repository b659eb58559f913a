"""The database -> what pages show: one module per noun, each with the queries that are about it."""

from __future__ import annotations

from service.store.pages import actions as actions
from service.store.pages import asked as asked
from service.store.pages import breakdowns as breakdowns
from service.store.pages import failures as failures
from service.store.pages import images as images
from service.store.pages import jobs as jobs
from service.store.pages import lines as lines
from service.store.pages import nodes as nodes
from service.store.pages import questions as questions
from service.store.pages import ranks as ranks
from service.store.pages import rules as rules
from service.store.pages import search as search
from service.store.pages import shift as shift
from service.store.pages import timeline as timeline
from service.store.pages import totals as totals
