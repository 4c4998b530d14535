"""Signals: at once while reading, held while changing, ignored once a change is done."""

from __future__ import annotations

import contextlib
import signal

import pytest

from patchkit.errors import Interrupted
from patchkit.signals import held


def test_at_once_ends_what_reads_whatever_that_catches() -> None:
    def read() -> None:
        with held() as signals, signals.at_once():
            with contextlib.suppress(Exception):
                signal.raise_signal(signal.SIGTERM)
            pytest.fail("it went on")

    with pytest.raises(Interrupted) as caught:
        read()
    assert caught.value.exit_code == 128 + signal.SIGTERM


def test_one_that_came_before_is_noticed_at_the_next_step() -> None:
    with held() as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            signals.check()
    assert caught.value.exit_code == 130, "the first one counts"


@pytest.mark.parametrize("done", [False, True])
def test_after_a_change_that_is_done_none_belies_the_exit_code(done: bool) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with held(last=True) as signals:
            signals.done = done
        assert signal.getsignal(signal.SIGTERM) is (signal.SIG_IGN if done else before)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, before)
