"""The notebook's own history of inputs and outputs, which stays as IPython has it."""

import re

__all__ = ["HISTORY"]

HISTORY = re.compile(r"_+|_i+|_i?\d+|In|Out|_[iod]h")
"""Names under which IPython keeps inputs and outputs."""
