"""``python -m patchkit`` and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from patchkit.guard import short_way

    code = short_way(sys.argv[1:])
    if code is None:
        from patchkit.cli import run

        code = run(sys.argv[1:])
    sys.exit(code)


if __name__ == "__main__":
    main()
