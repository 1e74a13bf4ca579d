"""`python -m semistream` is the command line."""

from __future__ import annotations

import sys

from semistream.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
