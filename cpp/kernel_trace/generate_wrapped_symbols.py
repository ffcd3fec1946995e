"""Lists the functions of ExecuTorch's static libraries that etprof wraps at link time.

Every microkernel of XNNPACK and KleidiAI that one object calls or points to in another is wrapped,
NEON ones included: no list is kept by hand, so another version's microkernels are found as well.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from generate_symbols import PARALLEL_PREFIX, make_parser, write_symbols

KERNEL = re.compile(r"kai_run_\w+|xnn_\w+_ukernel_\w+")
# These return a size of a microkernel of the same name, and compute nothing.
QUESTION = re.compile(r"\w+_get_[mn]r")
ALWAYS_WRAPPED = ("clock_gettime", "xnn_invoke_runtime")


def read_symbols(nm: str, archives: list[Path]) -> tuple[set[str], set[str]]:
    """Returns the functions that objects define, and the symbols that objects need from others."""
    command = [nm, "--format=posix", *map(str, archives)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    defined, needed = set(), set()
    for words in map(str.split, text.splitlines()):
        if len(words) > 1 and words[1] in "TtW":
            defined.add(words[0])
        elif len(words) > 1 and words[1] == "U":
            needed.add(words[0])
    return defined, needed


def is_kernel(name: str) -> bool:
    """Whether a symbol is a microkernel."""
    return KERNEL.fullmatch(name) is not None and QUESTION.fullmatch(name) is None


def main() -> None:
    """Writes the include file, and the linker's options for one symbol each."""
    parser = make_parser(__doc__)
    parser.add_argument("--nm", required=True)
    parser.add_argument("--options", type=Path, required=True)
    arguments = parser.parse_args()
    defined, needed = read_symbols(arguments.nm, arguments.libraries)
    kernels = sorted(name for name in defined & needed if is_kernel(name))
    parallel = sorted(name for name in defined & needed if name.startswith(PARALLEL_PREFIX))
    if not kernels or not parallel:
        sys.exit("ExecuTorch's libraries have no microkernels to wrap; use ETPROF_KERNEL_TRACE=OFF")
    write_symbols(arguments, kernels, parallel)
    wrapped = [*kernels, *parallel, *ALWAYS_WRAPPED]
    arguments.options.write_text("".join(f"-Wl,--wrap={name}\n" for name in wrapped))


if __name__ == "__main__":
    main()
