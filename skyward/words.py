"""How nodes are named in sentences: one wording for the library, the console and notebooks."""

from collections.abc import Collection

__all__ = ["asked_to_stop", "nodes_text"]


def nodes_text(ranks: Collection[int]) -> str:
    """Return the nodes of these ranks as a sentence names them: `node 3`, or `nodes 0, 1 and 4`; empty for none."""
    *before, last = [str(rank) for rank in sorted(ranks)] or [""]
    if before:
        return f"nodes {', '.join(before)} and {last}"
    return f"node {last}" if last else ""


def asked_to_stop(ranks: Collection[int], within: str = "yet") -> str:
    """Return the sentence, without its full stop, about nodes that were told to stop work and have not said so yet.

    Args:
        within: the time that they had, such as `within 5 s`.
    """
    was, has = ("was", "has") if len(ranks) == 1 else ("were", "have")
    return f"{nodes_text(ranks)} {was} asked to stop the work, and {has} not confirmed it {within}"
