"""What the upgrade tools for nets share."""

from __future__ import annotations

import logging

from caffe.errors import ProtoError
from caffe.proto.caffe_pb2 import NetParameter
from caffe.upgrade_proto import net_needs_upgrade, upgrade_net

_log = logging.getLogger("caffe")


def upgrade(net: NetParameter, path: str) -> bool:
    """Upgrade a net read from path, in place; False when something had to be left behind."""
    if not net_needs_upgrade(net):
        _log.error("File already in latest proto format: %s", path)
    return upgrade_net(net, path)


def incomplete(path: str, output: str) -> ProtoError:
    """The error that makes the exit status tell of fields left behind, once the rest is written."""
    return ProtoError(
        f"{path}: Encountered error(s) while upgrading; see details above. What could be upgraded was "
        f"written to {output}."
    )
