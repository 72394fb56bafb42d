"""Host memory that killed engines leave behind is found, and nobody else's."""

import mmap
from pathlib import Path

from sgkv.vllm.leftovers import describe, orphans


def write(folder: Path, name: str) -> Path:
    path = folder / f"vllm_offload_{name}.mmap"
    path.write_bytes(bytes(mmap.PAGESIZE))
    return path


def test_only_files_that_no_process_has_mapped_are_named(tmp_path: Path) -> None:
    orphan, used = write(tmp_path, "orphan"), write(tmp_path, "used")
    (tmp_path / "other").write_bytes(b"x")
    with used.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert orphans(tmp_path, settled=0.0) == [orphan]
    assert orphans(tmp_path, settled=0.0) == [orphan, used]
    assert f"rm {orphan}" in describe([orphan])


def test_a_file_that_is_about_to_be_mapped_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "young")
    assert orphans(tmp_path, settled=3600.0) == []
