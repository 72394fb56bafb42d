"""Guided fuzzing of what reads foreign bytes, for as long as one likes. Needs `pip install atheris`.

python scripts/fuzz_atheris.py header|blob|yaml|toml|json [libFuzzer options] [CORPUS...]

e.g. `python scripts/fuzz_atheris.py yaml -max_total_time=600 /tmp/found tests/fuzz/corpus/configs`: inputs
that reach new code are written to the first folder. What crashes belongs into tests/fuzz/corpus.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["sgkv", "yaml", "tomllib", "tests.fuzz"]):
    from tests.fuzz import targets

FORMATS = ("yaml", "toml", "json")


def main() -> None:
    target = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        tests: dict[str, Callable[[bytes], object]] = {
            "header": targets.read_header,
            "blob": targets.read_blob,
        }
        tests |= {ending: _file_test(Path(folder) / f"c.{ending}") for ending in FORMATS}
        if target not in tests:
            sys.exit(f"name one of: {', '.join(tests)}")
        atheris.Setup(sys.argv, tests[target])
        atheris.Fuzz()


def _file_test(path: Path) -> Callable[[bytes], object]:
    def test(content: bytes) -> None:
        path.write_bytes(content)
        targets.read_config_file(path)

    return test


if __name__ == "__main__":
    main()
