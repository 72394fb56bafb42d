"""vLLM's KV tensors as pages: the same bytes as a row that is converted, and nothing that is not wanted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from sgkv.vllm.connecting.blocks import BlockPages, slots_of  # noqa: E402
from sgkv.vllm.connecting.heads import HeadPages  # noqa: E402
from sgkv.vllm.rows import Packing, RowShape  # noqa: E402

LAYERS, HEADS, DIM, BLOCKS = 2, 3, 8, 20


def pool(packing: Packing, block: int, dtype: torch.dtype) -> tuple[RowShape, list[torch.Tensor]]:
    """A shape, and tensors that are views of one memory with the layers inside each block."""
    item = torch.tensor([], dtype=dtype).element_size()
    shape = RowShape(packing, "any", item, LAYERS, block, HEADS, DIM)
    whole = torch.randn(BLOCKS, LAYERS, HEADS, block, 2 * DIM).to(dtype)
    inside = packing is Packing.FUSED
    return shape, [whole[:, layer] if inside else whole[:, layer].clone() for layer in range(LAYERS)]


@given(
    packing=st.sampled_from(Packing),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    sizes=st.sampled_from([(4, 4), (4, 16), (16, 4), (8, 16)]),
    table=st.permutations(range(1, BLOCKS)),
)
def test_pages_are_those_of_a_row_of_the_same_blocks(packing, dtype, sizes, table) -> None:
    block, page = sizes
    shape, tensors = pool(packing, block, dtype)
    blocks = table[: 4 * max(1, page // block)]
    pages = BlockPages(tensors, shape, page)
    slots = slots_of(blocks, block, 0, len(blocks) * block, range(len(blocks) * block))
    buffer = torch.empty(len(slots) // page * pages.page_bytes, dtype=torch.uint8)
    pages.pack(slots, buffer)
    row = torch.stack([torch.stack([tensor[at] for at in blocks]) for tensor in tensors]).contiguous()
    wanted = bytearray(len(buffer))
    shape.to_pages(memoryview(row.view(torch.uint8).numpy()).cast("B"), memoryview(wanted), page)
    assert bytes(buffer.numpy()) == bytes(wanted)
    before = [tensor.clone() for tensor in tensors]
    for tensor in tensors:
        tensor.fill_(0)
    pages.unpack(slots, buffer)
    for tensor, old in zip(tensors, before, strict=True):
        assert torch.equal(tensor[blocks], old[blocks])
        left = sorted(set(range(BLOCKS)) - set(blocks))
        assert not tensor[left].any()


@pytest.mark.parametrize("packing", Packing)
def test_a_layer_by_itself_fills_what_is_wanted_and_no_more(packing: Packing) -> None:
    shape, tensors = pool(packing, 4, torch.float32)
    pages, tokens = BlockPages(tensors, shape, 8), range(6, 16)
    slots = slots_of([5, 0, 2, 7], 4, 0, 16, tokens)  # in the second block nothing is kept
    source = torch.randn(2 * pages.layer_bytes // 4).view(torch.uint8)
    whole = torch.zeros(2, LAYERS, pages.layer_bytes, dtype=torch.uint8)
    whole[:, 1] = source.view(2, -1)
    pages.unpack_layer(1, slots, source)
    read = torch.empty(2 * pages.page_bytes, dtype=torch.uint8)
    pages.pack(torch.where(slots < 0, 0, slots), read)
    kept = read.view(2, 2, LAYERS, 8, -1)[1, :, 1]
    assert torch.equal(kept, source.view(2, 2, 8, -1)[1])
    assert slots[:8].tolist() == [-1] * 8


@pytest.mark.parametrize("order", ["LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC"])
def test_rows_of_heads_are_the_same_pages_in_every_layout(order: str) -> None:
    """Through the kernels' reference; what they do on a GPU, and pass over, `tests/kernels` shows."""
    sizes = {"L": LAYERS, "B": BLOCKS, "N": 4, "H": HEADS, "C": 2 * DIM}
    whole = torch.randn([sizes[axis] for axis in order]).permute([order.index(axis) for axis in "LBHNC"])
    shape = RowShape(Packing.FUSED, "float32", 4, LAYERS, 4, HEADS, DIM)
    plain, rows = (kind(list(whole), shape, 8) for kind in (BlockPages, HeadPages))
    slots = slots_of([5, 3, 2, 7], 4, 0, 16, range(16))
    read = [torch.empty(2 * pages.page_bytes, dtype=torch.uint8) for pages in (plain, rows)]
    plain.pack(slots, read[0])
    rows.pack(slots, read[1])
    assert (plain.page_bytes, plain.layer_runs(1)) == (rows.page_bytes, rows.layer_runs(1))
    assert torch.equal(*read)
    before = whole.clone()
    whole.zero_()
    rows.unpack(slots, read[0])
    used = [5, 3, 2, 7]
    assert torch.equal(whole[:, used], before[:, used])
    assert whole.count_nonzero() == before[:, used].count_nonzero()
    layer = torch.randn(2 * rows.layer_bytes // 4).view(torch.uint8)
    rows.unpack_layer(1, slots, layer)
    after = whole.clone()
    whole[1] = 0
    plain.unpack_layer(1, slots, layer)
    assert torch.equal(whole, after)
    assert rows.rows_of(torch.tensor([-1])).tolist() == [-1] * HEADS


def test_tensors_of_another_shape_are_refused() -> None:
    shape, tensors = pool(Packing.VEC, 4, torch.float32)
    with pytest.raises(ValueError, match="was expected"):
        BlockPages([tensor[..., :DIM] for tensor in tensors], shape, 8)
