"""Mode per thread with a process default; seeds; ranks."""

from __future__ import annotations

import threading

import pytest

from caffe import context


def in_thread(function):
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]


def test_a_new_thread_starts_with_the_process_mode() -> None:
    context.set_mode_gpu()
    assert context.mode() == context.GPU and in_thread(context.mode) == context.GPU


def test_a_thread_keeps_its_own_mode_to_itself() -> None:
    def switch() -> str:
        context.set_mode_gpu()
        context.set_device(3)
        return f"{context.mode()}{context.device()}"

    assert in_thread(switch) == "GPU3"
    assert context.mode() == context.CPU and context.device() == 0


def test_settings_hold_within_and_in_this_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAFFE_ENGINE", raising=False)
    seen: list[tuple[str, int, str]] = []

    def look() -> None:
        seen.append((context.mode(), context.device(), context.engine()))

    outside = (context.mode(), context.device(), "")
    with pytest.raises(KeyError), context.using(mode=context.GPU, device=3, engine="reference"):
        look()
        with context.using(engine="onednn"):
            look()
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        raise KeyError
    look()
    monkeypatch.setenv("CAFFE_ENGINE", "onednn")
    look()
    assert seen == [
        (context.GPU, 3, "reference"),
        (context.GPU, 3, "onednn"),
        (context.GPU, 3, "reference"),
        outside,
        outside,
        (*outside[:2], "onednn"),
    ]


def test_seeds_are_repeatable_and_nets_differ() -> None:
    context.set_random_seed(5)
    first = [context.next_net_seed() for _ in range(3)]
    context.set_random_seed(5)
    assert [context.next_net_seed() for _ in range(3)] == first
    assert len(set(first)) == 3


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seed_range(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must lie in"):
        context.set_random_seed(seed)


def test_ranks() -> None:
    context.set_solver_count(4)
    context.set_solver_rank(2)
    assert (context.solver_count(), context.solver_rank(), context.root_solver()) == (4, 2, False)
    with pytest.raises(ValueError, match="at least one"):
        context.set_solver_count(0)
    with pytest.raises(ValueError, match="ordinal"):
        context.set_device(-1)
