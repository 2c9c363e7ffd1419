"""Timer: what it counts as running, not how fast this machine is."""

from __future__ import annotations

import time

import caffe


def test_a_timer_keeps_its_time_until_it_starts_again() -> None:
    timer = caffe.Timer()
    assert timer.ms == 0
    timer.stop()
    assert timer.ms == 0
    timer.start()
    time.sleep(0.01)
    timer.stop()
    first = timer.ms
    assert first >= 10
    time.sleep(0.01)
    assert timer.ms == first
    timer.start()
    while_running = timer.ms
    assert 0 <= while_running
    assert timer.ms == while_running
