"""A configuration decides what a store may hold."""

from pathlib import Path

from sgkv.config import Config, resolve
from sgkv.store.build import build_store
from tests.store.conftest import layout, namespace


def test_every_bound_of_a_configuration_is_in_force(tmp_path: Path):
    config = Config.model_validate(
        {
            "tiers": [
                {"type": "cpu", "capacity": "4MiB", "copy_threads": 2},
                {
                    "type": "disk",
                    "path": str(tmp_path),
                    "capacity": "8MiB",
                    "min_free": 0,
                    "io_threads": 3,
                    "max_inflight": 5,
                },
            ],
            "limits": {"promotion_pages": 11, "remembered_pages": 22},
            "write_behind": {"max_bytes": "1MiB", "threads": 2},
        }
    )
    store = build_store(resolve(config))
    session = store.open(namespace(), layout())
    stats = store.stats()
    store.close()
    limits = {name: bound.limit for name, bound in stats.bounds.items()}
    assert limits == {
        "write_behind_bytes": 1 << 20,
        "write_behind_threads": 2,
        "promotion_pages": 11,
        "promotion_threads": 1,
        "memo_pages": 22,
    }
    disk = stats.tiers["disk"]
    assert (stats.tiers["cpu"].capacity_bytes, disk.capacity_bytes) == (4 << 20, 8 << 20)
    assert (disk.bounds["read_threads"].limit, disk.bounds["guard_threads"].limit) == (3, 5)
    assert session.remembered.limit == 22
