"""Ctrl-C while something is held back, and after."""

import os
import signal
import threading

import pytest

from autogemm.support.interrupt import ctrl_c_held_back, stop_on_ctrl_c


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_is_under_way_is_done_first() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with ctrl_c_held_back():
            press()
            done.append("first")
        done.append("second")
    assert done == ["first"]


def test_it_is_not_forgotten_where_the_step_fails() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, ctrl_c_held_back():
        press()
        raise ValueError
    assert isinstance(raised.value.__context__, ValueError)


def test_a_second_one_does_not_wait() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), ctrl_c_held_back():
        press()
        press()
        done.append("too late")
    assert done == []


def test_a_wish_is_granted_all_the_same() -> None:
    with stop_on_ctrl_c() as wish:
        with ctrl_c_held_back():
            press()
            assert not wish.is_set()
        assert wish.by_user


def test_handlers_are_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c_held_back(), ctrl_c_held_back():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_hold_nothing_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with ctrl_c_held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
