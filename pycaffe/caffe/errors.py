"""Every exception that this package raises on purpose.

    CaffeError
    ├── ProtoError                a prototxt or binary message
    │   ├── ParseError            text that is no prototxt: file, line, column, the line itself
    │   └── WireError             bytes that are no protobuf message, or a truncated one
    ├── NetError                  how layers are wired: unknown bottom, top produced twice, ...
    ├── LayerError                one layer's parameters or inputs
    │   ├── UnknownLayerError     a type that nobody registered
    │   ├── ShapeError            shapes that do not fit (also raised by blobs)
    │   ├── LabelError            a label outside its range
    │   ├── FillerError           a filler_param that cannot fill its blob
    │   └── GradientError         backward disagrees with forward (gradient_check)
    ├── WeightsError              weights that do not fit the net they are copied into
    ├── DataError                 databases, records, images, HDF5, list files
    ├── SolverError               solver parameters and solver states
    │   └── SnapshotError         writing or restoring a snapshot
    ├── CopyError                 a net, a layer or a solver that was to be copied or pickled
    ├── EngineError               an engine or device that is absent or failed
    └── ForkError                 a forked child using what it must not inherit

All carry plain text that says what was wrong, where, and how to mend it. `CaffeError` is not a
ValueError: a script may catch everything of ours with one name and nothing else with it.
"""

from __future__ import annotations

from collections.abc import Iterable


class CaffeError(Exception):
    """Base of the tree. `str(error)` is one readable message, possibly of several lines."""


class ProtoError(CaffeError):
    """A message that cannot be read, written or upgraded."""


class ParseError(ProtoError):
    """Text that is no valid prototxt. path, line and column (1-based) tell where."""

    def __init__(self, message: str, path: str = "", line: int = 0, column: int = 0):
        super().__init__(message)
        self.path, self.line, self.column = path, line, column


class WireError(ProtoError):
    """Bytes that are no message of the expected type, or that end too early."""


class NetError(CaffeError):
    """The net as a whole: names, wiring, sharing, phases."""


class LayerError(CaffeError):
    """A fault in one layer.

    layer, layer_type: whose. place: "net.prototxt:41" where the net was read from a file. The net
    fills in what the raising code did not know, so that deep code may simply raise.
    """

    def __init__(self, message: str, layer: str = "", layer_type: str = "", place: str = ""):
        super().__init__(message)
        self.message, self.layer, self.layer_type, self.place = message, layer, layer_type, place

    def __str__(self) -> str:
        if not self.layer:
            return self.message
        about = ", ".join(x for x in (self.layer_type, self.place) if x)
        return f"layer '{self.layer}'{f' ({about})' if about else ''}: {self.message}"


class UnknownLayerError(LayerError):
    """A layer type without a registration."""


class ShapeError(LayerError):
    """Shapes that do not fit each other, a parameter, or the limits of a blob."""


class LabelError(LayerError):
    """A label outside [0, C): names position, value and range."""


class FillerError(LayerError):
    """A filler whose parameters or target shape are impossible."""


class GradientError(LayerError):
    """A backward pass that is not the derivative of its forward pass: names blob, index and both values."""


class WeightsError(CaffeError):
    """Weights that do not fit the net: names layer, both shapes, and the cure."""


class DataError(CaffeError):
    """A data source that is missing, damaged, or not what the layer expects."""


class SolverError(CaffeError):
    """A solver definition or state that cannot be run."""


class SnapshotError(SolverError):
    """A snapshot that cannot be written, or is not one of this solver and net."""


class CopyError(CaffeError, TypeError):
    """What holds threads, files or memory of engines is not copied, and not sent to other processes."""


class EngineError(CaffeError):
    """An engine or device that is not there, or that failed."""


class ForkError(CaffeError):
    """Raised in a forked child that would otherwise hang on inherited threads or engines."""


def closest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Text that helps after an unknown name: "; did you mean 'ReLU'?" or "" when nothing is near."""
    import difflib  # only a mistake needs it

    names = list(known)
    lower = {n.lower(): n for n in names}
    hits = [lower[x] for x in difflib.get_close_matches(name.lower(), lower, n=count, cutoff=0.6)]
    return f"; did you mean {' or '.join(repr(h) for h in hits)}?" if hits else ""
