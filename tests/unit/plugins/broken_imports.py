"""A part on nodes whose module needs more than what a node has."""

import numpy as np

from skyward.task.on_node import OnNode

__all__ = ["ImportingEarly"]


class ImportingEarly(OnNode):
    """A part that uses numpy."""

    zero = np.zeros(1)
