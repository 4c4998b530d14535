"""``python -m patchkit`` and the console script."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    # A command is over before cycles could matter; looking for them took a tenth of the time
    # of a large patch.
    gc.disable()
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.executable:
        # Paths are UTF-8 in wheels, patches and RECORD, whatever the locale says (PEP 540).
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    try:
        from patchkit.commands import short_way

        code = short_way(sys.argv[1:])
        if code is None:
            from patchkit.cli import run

            code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were still imported
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
