"""The schema as Python: `from caffe.proto import caffe_pb2`.

caffe_pb2.py and .pyi are generated from proto/caffe.proto by scripts/proto and committed, so that
installing needs no compiler. Everything else about messages is caffe.proto_text (prototxt files) and
caffe.wire (weights and solver states).
"""

from __future__ import annotations

from google.protobuf import text_format

from . import caffe_pb2

# str(net) as pycaffe always gave it, `lr_mult: 1.0`; protobuf's current implementation writes `lr_mult: 1`.
for _name in caffe_pb2.DESCRIPTOR.message_types_by_name:
    getattr(caffe_pb2, _name).__str__ = text_format.MessageToString
