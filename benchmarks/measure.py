"""Runs one command and prints what it cost, as JSON on standard output.

A process of its own, started with ``-I -S``: Linux counts the memory of the process that
forks as the child's, so the one that forks must be small.
"""

import json
import os
import sys
import time


def main() -> None:
    """``measure.py COMMAND…``: wall and CPU in seconds, peak memory in bytes, exit code.

    CPU is user and system time of the command and of all that it waited for.
    """
    quiet = os.open(os.devnull, os.O_RDWR)
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.dup2(quiet, 0)
        os.dup2(quiet, 1)
        os.execvp(sys.argv[1], sys.argv[1:])
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - begin
    print(
        json.dumps(
            {
                "wall": wall,
                "cpu": usage.ru_utime + usage.ru_stime,
                "peak": usage.ru_maxrss * 1024,
                "exit_code": os.waitstatus_to_exitcode(status),
            }
        )
    )


if __name__ == "__main__":
    main()
