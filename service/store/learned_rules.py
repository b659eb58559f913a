"""The learned rules in the service's database. Without ``diagnose.learning`` there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from diagnose.errors import installed
from service.store import Store, Within

if TYPE_CHECKING:
    from diagnose.learning.learned_rule import LearnedRule
    from diagnose.learning.rule_store import RuleStore


def learned_rules(store: Store | Within) -> RuleStore | None:
    """The rule store; None if nothing here can read it."""
    if not installed("diagnose.learning"):
        return None
    from diagnose.learning.rule_store import RuleStore

    return RuleStore(store)


def stored(connection: Connection, state: str | None = None) -> list[LearnedRule]:
    """The learned rules in a state (None: in any), oldest first."""
    if not installed("diagnose.learning"):
        return []
    from diagnose.learning.rule_store import rules, selected

    return selected(connection, *([rules.c.state == state] if state is not None else []))
