"""A module whose import changes the process, as that of a framework does."""

import os
import warnings

__all__: list[str] = []

os.environ["FRAMEWORK"] = "1"
warnings.filterwarnings("ignore", message="a warning of a framework")
