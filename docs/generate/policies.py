"""The scaling policies."""

import inspect

from docs.generate.markdown import table
from skyward.scaling.registry import POLICIES, find_policy

__all__ = ["policy_table"]


def policy_table() -> str:
    """Return a table of the policies, the default first."""
    rows = []
    for name in POLICIES:
        policy = find_policy(name)
        sentence = (inspect.getdoc(type(policy)) or "").partition("\n\n")[0].replace("\n", " ")
        evaluated = "when tasks arrive" if policy.interval is None else f"every {policy.interval:g} s"
        rows.append((f"{{py:class}}`{name} <skyward.scaling.{type(policy).__name__}>`", evaluated, sentence))
    return table(("policy", "evaluated", "rule"), rows)
