"""TEST ONLY: stands for nvcc; compiles a .cu text, unchanged, into a library that libcuda.cpp can run.

Takes the arguments that the engine gives nvcc (--cubin or --ptx, -arch, -I, -D, -o, one file), and answers
--version and --list-gpu-arch.
What it has compiled before it keeps in EMULATED_NVCC_CACHE, since tests start with an empty cache of the
engine's own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = "-std=c++17 -O2 -w -shared -fPIC -fno-strict-aliasing -ffp-contract=off -fvisibility=hidden".split()
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\([^)]*\)\s*)?void\s+(\w+)\s*\(")
# Not legal C++: the one construct that is rewritten.
_DYNAMIC_SHARED = re.compile(r"extern\s+__shared__\s+(\w+)\s+(\w+)\s*\[\s*\]\s*;")


def main(arguments: list[str]) -> int:
    if "--version" in arguments:
        print("emulated nvcc: Cuda compilation tools, release 13.0, V13.0.0")
        return 0
    if "--list-gpu-arch" in arguments:
        print("compute_75\ncompute_80\ncompute_90\ncompute_100\ncompute_120")
        return 0
    source = next(Path(a) for a in arguments if a.endswith(".cu"))
    target = arguments[arguments.index("-o") + 1]
    text = source.read_text(encoding="utf-8")
    body = _DYNAMIC_SHARED.sub(r"\1* const \2 = reinterpret_cast<\1*>(emulated_dynamic_shared);", text)
    options = [a for a in arguments if a.startswith(("-I", "-D"))]
    kept = _kept(source, options)
    if kept is not None and kept.is_file():
        shutil.copyfile(kept, target)
        return 0
    kernels = "".join(f"EMULATED_KERNEL({name})\n" for name in _KERNEL.findall(_COMMENT.sub("", text)))
    with tempfile.TemporaryDirectory() as folder:
        cpp = Path(folder) / "kernel.cpp"
        cpp.write_text(f'#include "{HERE}/device.h"\n#line 1 "{source}"\n{body}\n{kernels}', encoding="utf-8")
        status = subprocess.run(["g++", *FLAGS, *options, "-o", target, str(cpp)], check=False).returncode
    if kept is not None and status == 0:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        shutil.copyfile(target, partial)
        partial.replace(kept)
    return status


def _kept(source: Path, options: list[str]) -> Path | None:
    """Where the outcome of this compilation is kept."""
    folder = os.environ.get("EMULATED_NVCC_CACHE", "")
    if not folder:
        return None
    texts = [source, HERE / "device.h", HERE / "nvcc.py"]
    for option in options:
        if option.startswith("-I"):
            texts += sorted(Path(option[2:]).glob("*.cuh"))
    digest = hashlib.sha256(repr((FLAGS, [o for o in options if o[:2] == "-D"])).encode())
    for text in texts:
        digest.update(text.read_bytes())
    return Path(folder) / f"{source.stem}-{digest.hexdigest()[:32]}.so"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
