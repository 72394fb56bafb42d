"""Import-only stand-ins for the GPU packages SGLang 0.5.23 imports unconditionally.

`triton`: the wheel takes 600 MB and runs no kernel without a GPU driver. `torchvision`: only image
models use it. `sgl_kernel`: its wheel is CUDA only. What is installed is left alone. With a stand-in the
*definitions* in SGLang import; launching a kernel or calling into the package raises `StandInUsedError`.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

PACKAGES = ("triton", "torchvision", "sgl_kernel")


class StandInUsedError(RuntimeError):
    """Code that needs the real package was reached on a machine without it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} was called, but only an import-only stand-in of it is here (CPU mode)")


class StandIn(ModuleType):
    """A module whose attributes exist: classes where capitalised, callable submodules elsewhere."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _placeholder_class(self.__name__, name) if name[0].isupper() else _submodule(self, name)
        setattr(self, name, value)
        return value

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise StandInUsedError(self.__name__)


class StandInFinder(MetaPathFinder, Loader):
    """Answers imports of its packages and of anything below them."""

    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        for name, value in _EVALUATED.get(module.__name__, {}).items():
            setattr(module, name, value)


class Kernel:
    """What `triton.jit` returns here: a definition that cannot be launched."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __getitem__(self, grid: object) -> Callable[..., NoReturn]:
        return self

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise StandInUsedError(f"triton kernel {self.__name__}")


def install_stand_ins(packages: Iterable[str] = PACKAGES) -> frozenset[str]:
    """Stand in for those of `packages` that are not installed; returns them. Idempotent."""
    missing = frozenset(name for name in packages if importlib.util.find_spec(name) is None)
    if missing:
        sys.meta_path.append(StandInFinder(missing))
    return missing


def _placeholder_class(module: str, name: str) -> type:
    """Something to inherit from or annotate with; instances take any arguments and do nothing."""
    return type(name, (), {"__module__": module, "__init__": lambda self, *args, **kwargs: None})


def _submodule(parent: StandIn, name: str) -> ModuleType:
    return importlib.import_module(f"{parent.__name__}.{name}")


def _jit(function: Callable[..., Any] | None = None, **options: object) -> Any:
    return Kernel if function is None else Kernel(function)


def _decorator(*args: object, **kwargs: object) -> Callable[[Any], Any]:
    return lambda decorated: decorated


class _Constexpr:
    def __init__(self, value: object = None) -> None:
        self.value = value


class _InterpolationMode(enum.Enum):
    """The names transformers evaluates when its image modules are imported."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_EVALUATED: dict[str, dict[str, object]] = {
    "triton": {
        "__version__": "3.0.0",
        "jit": _jit,
        "autotune": _decorator,
        "heuristics": _decorator,
        "cdiv": lambda a, b: -(a // -b),
        "next_power_of_2": lambda n: 1 << (n - 1).bit_length() if n > 0 else 1,
    },
    "triton.language": {"constexpr": _Constexpr},
    "triton.knobs": {"runtime": None},  # no hooks on kernel loads, as in older triton
    "torchvision": {"__version__": "0.28.0"},
    "torchvision.transforms": {"InterpolationMode": _InterpolationMode},
    "torchvision.transforms.functional": {"InterpolationMode": _InterpolationMode},
    "torchvision.transforms.v2": {"InterpolationMode": _InterpolationMode},
    "torchvision.transforms.v2.functional": {"InterpolationMode": _InterpolationMode},
}
"""What SGLang, torch and transformers use, not only name, while they are being imported."""
