"""Which nets a SolverParameter asks for, and from where."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import SolverError
from .net import Net
from .proto import caffe_pb2
from .upgrade_proto import read_net_upgraded

_TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


@dataclass
class NetDefinition:
    """A net to build: its definition, the file that it came from ("" for none), and how to speak of it."""

    param: caffe_pb2.NetParameter
    path: str
    described: str

    def build(self, phase: int) -> Net:
        return Net(self.param, phase=phase, source=self.path)


def train_net_definition(param: caffe_pb2.SolverParameter) -> NetDefinition:
    """The one train net. Raises SolverError when there is none, or more than one."""
    given = [f for f in _TRAIN_FIELDS if param.HasField(f)]
    fields = "net, net_param, train_net, train_net_param"
    if not given:
        raise SolverError(f"SolverParameter must specify a train net using one of these fields: {fields}")
    if len(given) > 1:
        raise SolverError(
            f"SolverParameter must not contain more than one of these fields specifying a train_net: "
            f"{fields} (given: {', '.join(given)})"
        )
    if given[0] == "train_net_param":
        return _from_message(param.train_net_param, " specified in train_net_param.")
    if given[0] == "train_net":
        return _from_file(param.train_net, f" from train_net file: {param.train_net}")
    if given[0] == "net_param":
        return _from_message(param.net_param, " specified in net_param.")
    return _from_file(param.net, f" from net file: {param.net}")


def test_net_definitions(param: caffe_pb2.SolverParameter) -> list[NetDefinition]:
    """The test nets in order: test_net_param, test_net, then `net` or `net_param` as often as test_iter
    asks."""
    specific = len(param.test_net_param) + len(param.test_net)
    generic = param.HasField("net") or param.HasField("net_param")
    count = len(param.test_iter)
    if (generic and count < specific) or (not generic and count != specific):
        raise SolverError(
            f"test_iter must be specified for each test network: {specific} test nets, {count} test_iter"
        )
    if param.test_state and len(param.test_state) != count:
        raise SolverError(
            f"test_state must be unspecified or specified once per test net: {count} test nets, "
            f"{len(param.test_state)} test_state"
        )
    if count and param.test_interval <= 0:
        raise SolverError(f"test_interval must be positive to test {count} net(s), not {param.test_interval}")
    if any(n <= 0 for n in param.test_iter):
        raise SolverError(f"every test_iter must be positive, not {list(param.test_iter)}")
    nets = [_from_message(p, "test_net_param") for p in param.test_net_param]
    nets += [_from_file(p, f"test_net file: {p}") for p in param.test_net]
    for _ in range(count - specific):
        if param.HasField("net_param"):
            nets.append(_from_message(param.net_param, "net_param"))
        else:
            nets.append(_from_file(param.net, f"net file: {param.net}"))
    return nets


def _from_message(message: caffe_pb2.NetParameter, described: str) -> NetDefinition:
    param = caffe_pb2.NetParameter()
    param.CopyFrom(message)
    return NetDefinition(param, "", described)


def _from_file(path: str, described: str) -> NetDefinition:
    return NetDefinition(read_net_upgraded(path), path, described)
