"""Any difference in identity is another namespace."""

from dataclasses import fields, replace

import pytest

from sgkv.identity import Namespace

BASE = Namespace(
    tenant="default",
    weights="w",
    epoch="",
    architecture="a",
    numerics="exact sglang 0.5.23",
    kv_dtype="bfloat16",
    page_tokens=64,
    chunk_tokens=256,
    pool="kv",
    cell="layers 0-32 tp 0/1",
    geometry="L32 T64 H8 rows 256,256",
)


def test_golden_digest():
    assert BASE.digest == "6ddf54a464496c83eb5225dc5b4e3a57"


@pytest.mark.parametrize("field", [f.name for f in fields(Namespace)])
def test_every_field_counts(field):
    value = getattr(BASE, field)
    other = replace(BASE, **{field: value + 1 if isinstance(value, int) else value + "x"})
    assert other.digest != BASE.digest


def test_fields_do_not_run_into_each_other():
    assert replace(BASE, tenant="ab", weights="c").digest != replace(BASE, tenant="a", weights="bc").digest


def test_equal_identities_have_equal_digests():
    assert replace(BASE).digest == BASE.digest
