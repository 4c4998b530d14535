"""Snippets for what launches servers: systemd, Slurm, Kubernetes, Docker, pre-commit, Bash.

Beside the core.  ``words`` knows each language's quoting, ``snippets`` each launcher's exit
codes and streams; both are text to text.  Nothing here writes a file.
"""
