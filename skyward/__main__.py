"""`python -m skyward`: the command `skyward`."""

import sys

from skyward.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
