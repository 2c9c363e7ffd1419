"""Solver: what holds for every type, the loop with its tests, displays, callbacks and requests, and recipes
that cannot be run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.callbacks import SolverAction, SolverCallback
from caffe.errors import SolverError
from caffe.proto import caffe_pb2
from caffe.solver_registry import _solvers, register_solver, solver_type_list
from solvers.support import NET, params, problem, solver_of

# Every type, with fields under which it moves.
SOLVERS = {
    "SGD": "momentum: 0.9",
    "Nesterov": "momentum: 0.9",
    "AdaGrad": "delta: 1e-3",
    "RMSProp": "rms_decay: 0.9 delta: 1e-3",
    "AdaDelta": "momentum: 0.9 delta: 1e-3",
    "Adam": "momentum: 0.9 momentum2: 0.99 delta: 1e-3",
}
COMMON = "base_lr: 0.1 weight_decay: 0.01 "
every_type = pytest.mark.parametrize("type", SOLVERS)


def fields(type: str) -> str:
    return f'type: "{type}" {COMMON} {SOLVERS[type]} '


def assert_equal(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_table_is_complete() -> None:
    assert solver_type_list() == sorted(SOLVERS)
    for type in SOLVERS:
        assert isinstance(solver_of(fields(type)), getattr(caffe, f"{type}Solver"))


# -- every type --------------------------------------------------------------------------------------------


@every_type
def test_goes_down(engine: str, type: str) -> None:
    solver = solver_of(fields(type))
    solver.net.forward()
    before = float(solver.net.blobs["loss"].data)
    solver.step(30)
    solver.net.forward()
    assert float(solver.net.blobs["loss"].data) < 0.8 * before


@every_type
@pytest.mark.parametrize("clip", ["", "clip_gradients: 1000"])
def test_iter_size_is_one_larger_batch(engine: str, type: str, clip: str) -> None:
    whole = solver_of(fields(type) + clip, batch=8)
    halves = solver_of(fields(type) + clip + " iter_size: 2", batch=4)
    for mine, theirs in zip(halves.net.learnable, whole.net.learnable, strict=True):
        mine.blob.data[...] = theirs.blob.data
    x, t = problem(8)
    calls = []

    def feed(layer: int) -> None:
        if layer == 0:
            half = slice(4, None) if len(calls) % 2 else slice(0, 4)
            halves.net.blobs["x"].data[...] = x[half]
            halves.net.blobs["t"].data[...] = t[half]
            calls.append(layer)

    halves.net.before_forward(feed)
    whole.step(5)
    halves.step(5)
    assert len(calls) == 10
    for a, b in zip(params(whole), params(halves), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@every_type
def test_clipping_is_that_of_the_gradient_before_iter_size(type: str) -> None:
    """Clipping at c with iter_size 2 is clipping at c/2 on the mean gradient."""
    results = []
    for extra in ("clip_gradients: 0.4 iter_size: 2", "clip_gradients: 0.2"):
        solver = solver_of(fields(type) + extra)
        solver.step(4)
        results.append(params(solver))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@every_type
@pytest.mark.parametrize("format", ["BINARYPROTO", "HDF5"])
def test_restored_it_goes_on_to_the_bit(engine: str, type: str, format: str) -> None:
    recipe = fields(type) + f"snapshot_format: {format}"
    solver = solver_of(recipe)
    solver.step(3)
    state = solver.snapshot()
    solver.step(3)
    other = solver_of(recipe.replace("random_seed: 1", "random_seed: 9"))
    other.restore(state)
    assert other.iter == 3
    for blob, theirs in zip(other.history, solver.history, strict=True):
        assert blob.shape == theirs.shape
    other.step(3)
    assert_equal(params(solver), params(other))
    assert_equal([h.data for h in solver.history], [h.data for h in other.history])


# -- weights to begin with -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ['weights: "a.caffemodel" weights: "b.h5"', 'weights: "a.caffemodel, b.h5"']
)
def test_begins_with_the_weights_of_the_recipe(field: str, caplog: pytest.LogCaptureFixture) -> None:
    net = NET % (6, 6)
    two = net.replace('bottom: "y"', 'bottom: "z"').replace('top: "y"', 'top: "z"').replace('"ip"', '"ip2"')
    first, second = solver_of("base_lr: 0.1", net=net), solver_of("base_lr: 0.1 random_seed: 3", net=two)
    first.net.save("a.caffemodel")
    second.net.save_hdf5("b.h5")
    both = net + two[two.index('layer { name: "ip2"') :].replace('top: "loss"', 'top: "loss2"')
    caplog.set_level(logging.INFO, "caffe")
    tests = "test_iter: 1 test_interval: 9 test_initialization: false "
    solver = solver_of("base_lr: 0.1 random_seed: 4 " + tests + field, net=both)
    assert_equal(params(solver), params(first) + params(second))
    for blobs in (solver.test_nets[0].params, solver.net.params):
        np.testing.assert_array_equal(blobs["ip2"][0].data, params(second)[0])
    lines = [m for m in messages(caplog) if m.startswith("Finetuning")]
    assert lines == ["Finetuning from a.caffemodel", "Finetuning from b.h5"] * 2


# -- the loop ----------------------------------------------------------------------------------------------

TWO_PHASES = """
layer { name: "data" type: "DummyData" top: "x" top: "t"
        dummy_data_param { shape { dim: 4 dim: 5 } shape { dim: 4 dim: 3 } data_filler { type: "uniform" } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
"""


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "caffe.solver"]


def test_step_zero_does_nothing() -> None:
    solver = solver_of("base_lr: 0.1")
    before = params(solver)
    solver.step(0)
    assert solver.iter == 0
    assert_equal(before, params(solver))


def test_apply_update_counts_and_takes_the_diffs_as_they_are() -> None:
    solver = solver_of("base_lr: 0.5")
    before = params(solver)
    for p in solver.net.learnable:
        p.blob.diff[...] = 1
    solver.apply_update()
    assert solver.iter == 1
    for p, old in zip(solver.net.learnable, before, strict=True):
        np.testing.assert_allclose(p.blob.data, old - 0.5 * p.lr_mult, rtol=1e-6)


def test_a_loop_of_ones_own_is_the_solvers() -> None:
    mine, theirs = solver_of(COMMON + "momentum: 0.9"), solver_of(COMMON + "momentum: 0.9")
    theirs.step(4)
    for _ in range(4):
        mine.net.clear_param_diffs()
        mine.net.forward()
        mine.net.backward()
        mine.apply_update()
    assert mine.iter == 4
    assert_equal(params(mine), params(theirs))


def test_the_rate_may_be_changed_while_running() -> None:
    solver = solver_of('base_lr: 0.5 lr_policy: "exp" gamma: 0.5')
    solver.step(1)
    assert solver.lr == 0.25
    solver.base_lr = 0.125
    assert (solver.base_lr, solver.lr) == (0.125, 0.0625)
    before = params(solver)
    solver.base_lr = 0
    solver.step(1)
    assert_equal(before, params(solver))


def test_rates_of_multistep_are_counted_in_updates(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caffe")
    solver = solver_of('base_lr: 1 lr_policy: "multistep" gamma: 0.5 stepvalue: 2 stepvalue: 3')
    rates = []
    for _ in range(5):
        rates += [solver.lr, solver.lr]
        solver.step(1)
    assert rates[::2] == rates[1::2] == [1, 1, 0.5, 0.25, 0.25]
    assert [m for m in messages(caplog) if "MultiStep" in m] == [
        "MultiStep Status: Iteration 2, step = 1",
        "MultiStep Status: Iteration 3, step = 2",
    ]


def test_display_shows_the_mean_of_the_last_losses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caffe")
    solver = solver_of("base_lr: 0.05 display: 1 average_loss: 3")
    losses = []
    solver.net.after_forward(
        lambda i: losses.append(float(solver.net.blobs["loss"].data)) if i == 2 else None
    )
    solver.step(4)
    solver.step(1)  # the log's mean starts anew, as the original's does; smoothed_loss goes on
    lines = [m for m in messages(caplog) if m.startswith("Iteration") and "iter/s" in m]
    shown = [float(m.split("loss = ")[1]) for m in lines]
    wanted = [np.mean(losses[max(0, i - 2) : i + 1]) for i in range(4)]
    assert shown == pytest.approx([*wanted, losses[4]], rel=1e-4)
    assert solver.smoothed_loss == pytest.approx(np.mean(losses[2:]), rel=1e-6)


def test_one_huge_loss_leaves_the_mean_with_the_window() -> None:
    solver = solver_of("base_lr: 0 average_loss: 2")
    for loss in (1.0, 1e30, 2.0, 4.0):
        solver._smooth(loss)
    assert solver.smoothed_loss == 3


def test_test_nets_share_the_parameters_and_average_their_outputs(engine: str) -> None:
    solver = solver_of(
        "base_lr: 0.1 test_iter: 3 test_iter: 2 test_interval: 100 test_initialization: false", net=TWO_PHASES
    )
    assert [net.phase for net in (solver.net, *solver.test_nets)] == [caffe.TRAIN, caffe.TEST, caffe.TEST]
    solver.step(2)
    for net in solver.test_nets:
        losses = []
        net.after_forward(
            lambda i, net=net, losses=losses: losses.append(float(net.blobs["loss"].data)) if i == 2 else 0
        )
        np.testing.assert_array_equal(net.params["ip"][0].data, solver.net.params["ip"][0].data)
        index = solver.test_nets.index(net)
        means = solver.test(index)
        assert len(losses) == solver.param.test_iter[index]
        assert len(set(losses)) > 1, "each batch was another one"
        assert means["loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert [set(result) for result in solver.test_all()] == [{"loss"}, {"loss"}]


def test_when_it_tests(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caffe")
    solver = solver_of(
        "base_lr: 0.1 test_iter: 1 test_interval: 2 max_iter: 4 snapshot_after_train: false "
        "test_compute_loss: true",
        net=TWO_PHASES,
    )
    solver.solve()
    lines = messages(caplog)
    assert [m for m in lines if "Testing" in m] == [f"Iteration {i}, Testing net (#0)" for i in (0, 2, 4)]
    loss = [m for m in lines if m.startswith("Test loss: ")]
    output = [m.strip() for m in lines if m.strip().startswith("Test net output #0: loss = ")]
    assert len(loss) == len(output) == 3
    assert float(loss[0].split()[-1]) == pytest.approx(float(output[0].split()[6]), rel=1e-4)
    assert lines[-1] == "Optimization Done."


def test_outputs_that_are_no_scalars_are_averaged_by_element() -> None:
    net = TWO_PHASES + 'layer { name: "e" type: "Power" bottom: "y" top: "e" }'
    solver = solver_of("base_lr: 0.1 test_iter: 2 test_interval: 10", net=net)
    outputs = []
    solver.test_nets[0].after_forward(
        lambda i: outputs.append(solver.test_nets[0].blobs["e"].data.copy()) if i == 4 else None
    )
    means = solver.test()
    assert means["e"].shape == (4, 3)
    np.testing.assert_allclose(means["e"], np.mean(outputs, axis=0), rtol=1e-6)


def test_solve_ends_as_the_recipe_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caffe")
    solver = solver_of("base_lr: 0.1 max_iter: 4 snapshot: 4 display: 2")
    solver.solve()
    assert solver.iter == 4
    assert Path("s_iter_4.solverstate").exists()
    lines = messages(caplog)
    assert sum(m.startswith("Snapshotting to") for m in lines) == 1, "not once more after the last"
    assert any(m.startswith("Iteration 4, loss = ") for m in lines)
    more = solver_of("base_lr: 0.1 max_iter: 6")
    more.solve("s_iter_4.solverstate")
    assert more.iter == 6
    assert more.last_snapshot == "s_iter_6.solverstate"
    assert Path(more.last_snapshot).exists()


# -- callbacks and requests --------------------------------------------------------------------------------


def test_callbacks_in_their_order() -> None:
    solver = solver_of("base_lr: 0.1 iter_size: 2")
    seen: list[str] = []
    passes = []
    solver.net.before_forward(lambda i: passes.append(i) if i == 0 else None)

    class Listener(SolverCallback):
        def on_start(self) -> None:
            seen.append("start")

        def on_param_gradient_ready(self, param) -> None:
            assert len(passes) % 2 == 0, "in the last pass only"
            seen.append(f"{solver.net.layers[param.layer_index].name}/{param.param_index}")

        def on_gradients_ready(self) -> None:
            seen.append(f"ready {solver.iter}")

    solver.add_callback(Listener())
    solver.add_callback(lambda: seen.append("mine"), lambda: seen.append("mine ready"))
    solver.step(1)
    assert seen == ["start", "mine", "ip/0", "ip/1", "ready 0", "mine ready"]


def test_gradients_are_told_backwards_and_shared_ones_when_complete() -> None:
    net = """
    layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
    layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" }
            inner_product_param { num_output: 3 bias_term: false weight_filler { type: "xavier" } } }
    layer { name: "b" type: "InnerProduct" bottom: "a" top: "b"
            inner_product_param { num_output: 3 bias_term: false weight_filler { type: "xavier" } } }
    layer { name: "c" type: "InnerProduct" bottom: "b" top: "c" param { name: "w" }
            inner_product_param { num_output: 3 bias_term: false } }
    layer { name: "loss" type: "Reduction" bottom: "c" top: "loss" loss_weight: 1 }
    """
    solver = solver_of("base_lr: 0.1", net=net)
    solver.net.blobs["x"].data[...] = 1
    told: list[tuple[str, np.ndarray]] = []

    class Listener(SolverCallback):
        def on_param_gradient_ready(self, param) -> None:
            told.append((solver.net.layers[param.layer_index].name, param.blob.diff.copy()))

        def on_gradients_ready(self) -> None:
            for name, diff in told:
                np.testing.assert_array_equal(diff, solver.net.params[name][0].diff)

    solver.add_callback(Listener())
    solver.step(1)
    assert [name for name, _ in told] == ["b", "a"]


def test_an_exception_is_told_and_raised() -> None:
    solver = solver_of("base_lr: 0.1")
    told = []

    class Listener(SolverCallback):
        def on_exception(self, error: BaseException) -> None:
            told.append(error)

    def fail() -> None:
        raise RuntimeError("mine")

    solver.add_callback(Listener())
    solver.add_callback(None, fail)
    with pytest.raises(RuntimeError, match="mine") as caught:
        solver.step(1)
    assert told == [caught.value]


def test_a_request_to_stop_ends_after_the_iteration_with_a_snapshot() -> None:
    solver = solver_of("base_lr: 0.1 max_iter: 100")
    solver.action = lambda: SolverAction.STOP if solver.iter == 3 else SolverAction.NONE
    solver.solve()
    assert (solver.iter, solver.stopped_early) == (3, True)
    assert Path("s_iter_3.solverstate").exists()
    solver.action = lambda: SolverAction.NONE
    solver.param.max_iter = 5
    solver.solve()
    assert (solver.iter, solver.stopped_early) == (5, False)


def test_a_request_for_a_snapshot_goes_on() -> None:
    solver = solver_of("base_lr: 0.1 max_iter: 4 snapshot_after_train: false")
    solver.action = lambda: SolverAction.SNAPSHOT if solver.iter == 2 else SolverAction.NONE
    solver.solve()
    assert sorted(path.name for path in Path().glob("*.solverstate")) == ["s_iter_2.solverstate"]


def test_a_request_to_stop_is_heard_while_testing() -> None:
    solver = solver_of("base_lr: 0.1 max_iter: 9 test_iter: 1000000 test_interval: 1", net=TWO_PHASES)
    calls = []

    def action() -> SolverAction:
        calls.append(None)
        return SolverAction.STOP if len(calls) == 5 else SolverAction.NONE

    solver.action = action
    solver.solve()
    assert (solver.iter, solver.stopped_early, len(calls)) == (0, True, 5)


# -- recipes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("base_lr: 1 iter_size: 0", "iter_size must be at least 1, not 0"),
        ("base_lr: 1 average_loss: 0", "average_loss should be non-negative and at least 1, not 0"),
        ('base_lr: 1 type: "Adm"', "Unknown solver type: Adm .*did you mean 'Adam'"),
        ("base_lr: 1 test_iter: 1", "test_interval must be positive to test 1 net"),
        ("base_lr: 1 test_iter: 0 test_interval: 1", "every test_iter must be positive"),
        (
            "base_lr: 1 test_iter: 1 test_interval: 1 test_state { } test_state { }",
            "test_state must be unspecified or specified once per test net: 1 test nets, 2 test_state",
        ),
        (
            'base_lr: 1 test_net: "a"',
            "test_iter must be specified for each test network: 1 test nets, 0 test_iter",
        ),
        ('base_lr: 1 train_net: "a"', r"must not contain more than one .*train_net, net_param\)"),
    ],
)
def test_refused_recipes(recipe: str, words: str) -> None:
    with pytest.raises(SolverError, match=words.replace("train_net, net_param", "net_param, train_net")):
        solver_of(recipe)


def test_a_recipe_without_a_net() -> None:
    with pytest.raises(
        SolverError, match="must specify a train net using one of these fields: net, net_param"
    ):
        caffe.get_solver(text_format.Parse('base_lr: 1 lr_policy: "fixed"', caffe_pb2.SolverParameter()))


def test_the_message_stays_the_callers() -> None:
    param = text_format.Parse('base_lr: 1 lr_policy: "fixed" solver_type: ADAM', caffe_pb2.SolverParameter())
    text_format.Parse(NET % (6, 6), param.net_param)
    before = param.SerializeToString()
    solver = caffe.get_solver(param)
    assert isinstance(solver, caffe.AdamSolver)
    assert param.SerializeToString() == before
    solver.param.base_lr = 3
    assert param.base_lr == 1


def test_a_solver_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffe.solver_registry._solvers", dict(_solvers))

    @register_solver("SignSGD")
    class SignSGDSolver(caffe.SGDSolver):
        """W ← W - lr · sign(g)."""

        histories = 0

        def compute_update(self, diff, history, rate, temporary) -> None:
            np.sign(diff, out=diff)
            diff *= rate

    solver = solver_of('type: "SignSGD" base_lr: 0.25')
    before = params(solver)
    solver.step(1)
    for old, new, mult in zip(before, params(solver), (1, 2), strict=True):
        np.testing.assert_allclose(np.abs(new - old), 0.25 * mult, rtol=1e-5)
    other = solver_of('type: "SignSGD" base_lr: 0.25')
    other.restore(solver.snapshot())
    assert_equal(params(solver), params(other))
    with pytest.raises(SolverError, match="solver type 'SGD' is registered already"):
        register_solver("SGD")(SignSGDSolver)


def test_only_rank_0_tests_and_writes() -> None:
    caffe.set_solver_count(2)
    caffe.set_solver_rank(1)
    solver = solver_of("base_lr: 0.1 max_iter: 2 snapshot: 1")
    solver.solve()
    assert solver.iter == 2
    assert not list(Path().iterdir())
