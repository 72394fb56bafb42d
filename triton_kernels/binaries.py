"""Kernels compiled for GPUs that are not here, and what their binaries say of them.

Triton's wheel brings every assembler and disassembler this needs; no driver is asked. Not in a process
where Triton interprets kernels.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sgkv.triton_kernels.kernels import ANYWHERE

TARGETS: Mapping[str, GPUTarget] = {
    "sm80": GPUTarget("cuda", 80, 32),
    "sm90": GPUTarget("cuda", 90, 32),
    "sm100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
}
_WIDE = 128
_TIMEOUT = 60.0
"""Seconds for a disassembler."""
_INDEX = "evict_last"
"""What marks the loads that read where rows are, not what is in them: they are read again by every plane."""


class Access(NamedTuple):
    """One instruction that reads or writes global memory."""

    bits: int
    lookup: bool
    """It looks up a slot or an address."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Static figures of a kernel's binary."""

    registers: int
    """A thread; of an AMD GPU its vector registers."""
    spills: int
    """Bytes of stack and local memory a thread (NVIDIA), or registers spilled (AMD)."""
    shared: int
    """Bytes of shared memory a program."""
    accesses: tuple[Access, ...]

    @property
    def data(self) -> tuple[Access, ...]:
        """Accesses to the pool and to the chunk: all but those that look up slots and addresses."""
        return tuple(access for access in self.accesses if not access.lookup)

    @property
    def wide_share(self) -> float:
        """How many of the accesses to pool and chunk move 128 bits a thread."""
        return sum(access.bits == _WIDE for access in self.data) / len(self.data)


def compiled(
    kernel: Any,
    target: str,
    pointers: Mapping[str, str],
    constants: Mapping[str, Any],
    options: dict[str, Any],
) -> Mapping[str, Any]:
    """The forms of `kernel` on its way to one of `TARGETS`: ``ptx``, ``cubin``, or ``amdgcn``, ``hsaco`` ...

    `pointers` are its pointer arguments with Triton's names of their types, each taken to be divisible by
    16 but for those that may lie `ANYWHERE`; `constants` its compile-time arguments; every other argument
    is a 32-bit integer. Raises what the compiler raises.
    """
    names = kernel.arg_names
    types = dict.fromkeys(names, "i32") | dict(pointers) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        fn=kernel,
        signature={name: types[name] for name in names},
        constexprs=dict(constants),
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in pointers if name not in ANYWHERE},
    )
    forms: Mapping[str, Any] = triton.compile(source, target=TARGETS[target], options=options).asm
    return forms


def figures_of(forms: Mapping[str, Any]) -> Figures:
    """What the binary among the forms of a compiled kernel says."""
    return _nvidia(forms["cubin"]) if "cubin" in forms else _amd(forms["amdgcn"])


def _nvidia(cubin: bytes) -> Figures:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _run(triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name)
        listing = _run(triton.knobs.nvidia.nvdisasm.path, file.name)
    found = {name: int(number) for name, number in re.findall(r"\b(REG|STACK|LOCAL|SHARED):(\d+)", usage)}
    accesses = tuple(_sass_accesses(listing))
    return Figures(found["REG"], found["STACK"] + found["LOCAL"], found["SHARED"], accesses)


def _sass_accesses(listing: str) -> Iterator[Access]:
    """``LDG.E.128``; ``.EL`` is how ``evict_last`` is spelled."""
    for kind in re.findall(r"\b(?:LDG|STG)((?:\.\w+)*)", listing):
        widths = re.findall(r"\.[US]?(8|16|64|128)\b", kind)
        yield Access(int(widths[0]) if widths else 32, ".EL" in kind)


def _amd(assembly: str) -> Figures:
    def number(field: str) -> int:
        return int(re.findall(rf"\.{field}:\s+(\d+)", assembly)[-1])

    spills = number("vgpr_spill_count") + number("sgpr_spill_count")
    accesses = tuple(_amd_accesses(assembly))
    return Figures(number("vgpr_count"), spills, number("group_segment_fixed_size"), accesses)


def _amd_accesses(assembly: str) -> Iterator[Access]:
    """``global_load_dwordx4``. The policy leaves no trace here, but the source's line is exact."""
    files = {number: f"{folder}/{name}" for number, folder, name in _FILE.findall(assembly)}
    source = ""
    for line in assembly.splitlines():
        if place := re.search(r"^\s*\.loc\s+(\d+) (\d+)", line):
            source = _source_line(files[place[1]], int(place[2]))
        elif found := re.search(r"^\s*(?:global|buffer|flat)_(?:load|store)_(\w+)", line):
            yield Access(_amd_bits(found[1]), _INDEX in source)


_FILE = re.compile(r'^\s*\.file\s+(\d+) "([^"]+)" "([^"]+)"', re.MULTILINE)


def _amd_bits(kind: str) -> int:
    words = re.match(r"dwordx?(\d?)", kind)
    if words:
        return 32 * int(words[1] or 1)
    return 8 if "byte" in kind else 16


@cache
def _source_line(path: str, line: int) -> str:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT)  # noqa: S603
    return done.stdout
