"""IPython's history of inputs and outputs, which cells do not capture."""

import re

__all__ = ["HISTORY"]

HISTORY = re.compile(r"_+|_i+|_i?\d+|In|Out|_[iod]h")
"""Names under which IPython keeps inputs and outputs."""
