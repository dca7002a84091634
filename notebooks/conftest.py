"""For nbval, which keeps a display that is cleared again: no lines of progress, which come and go with the time."""

import os

os.environ["SKYWARD_PROGRESS"] = "off"
