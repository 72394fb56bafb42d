"""Kind: two ranks clear one folder at the same time, and one of them raises over what the other deleted."""

import threading

from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, write
from tests.sglang.pools import fill, page_bytes

KEYS = chain(8)
ROUNDS = 25


def test_ranks_that_clear_and_write_one_folder_at_once(disk_rig: Rig) -> None:
    kv = make.mla()
    fill(kv, seed=1)
    places = [{"is_mla_model": True, "tp_rank": rank, "tp_size": 3} for rank in range(3)]
    ranks = [disk_rig.backend(kv, place) for place in places]
    begin = threading.Barrier(3)

    def hammer(rank: SgkvHiCache) -> None:
        for _ in range(ROUNDS):
            begin.wait(30)
            write(rank, kv, KEYS, range(8))
            rank.clear()

    threads = [threading.Thread(target=hammer, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert [rank.store.counters.get("internal_errors") for rank in ranks] == [0] * 3
    assert [rank.batch_exists(KEYS, after()) for rank in ranks] == [0] * 3
    assert all(write(ranks[0], kv, KEYS, range(8)))
    assert read(ranks[1], kv, KEYS, range(8, 16)) == [True] * 8
    assert [page_bytes(kv.host, page) for page in range(8, 16)] == [
        page_bytes(kv.host, page) for page in range(8)
    ]
