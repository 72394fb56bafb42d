"""Inputs worth remembering. A file's name says whether it must be accepted."""

from pathlib import Path

import pytest

from tests.fuzz.targets import HASHES, read_blob, read_config_file, read_header

CORPUS = Path(__file__).parent / "corpus"
HEADERS = sorted((CORPUS / "headers").iterdir())
CONFIGS = sorted((CORPUS / "configs").iterdir())


def accepted(path: Path) -> bool:
    verdict, _, _ = path.name.partition("_")
    assert verdict in {"accepted", "refused"}
    return verdict == "accepted"


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.stem)
def test_headers(path: Path) -> None:
    raw = path.read_bytes()
    assert (read_header(raw) is not None) == accepted(path)
    assert None not in read_blob(raw), "no pages follow, so none can be right"
    assert len(read_blob(raw + bytes(100))) == len(HASHES)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_configs(path: Path) -> None:
    assert (read_config_file(path) is not None) == accepted(path)
