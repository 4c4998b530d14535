"""``python -m patchkit`` and the console script."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    # A command is over before cycles could matter; looking for them took a tenth of the time
    # of a large patch.
    gc.disable()
    try:
        from patchkit.guard import short_way

        code = short_way(sys.argv[1:])
        if code is None:
            from patchkit.cli import run

            code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were still imported
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
