"""Text that claims to be a configuration: accepted, or refused with what to mend. Never anything else."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgkv.sglang.launch import expand
from sgkv.weights import fingerprint
from tests.fuzz.targets import read_config_file, read_environment, read_extra_config

GOOD = {
    "tenant": "a",
    "chunk_tokens": 64,
    "ttl": "1h",
    "model": {"weights": "r1", "numerics": "exact"},
    "engine": {"exists_deadline": "50ms", "get_deadline": 5, "set_deadline": "5s"},
    "write_behind": {"max_bytes": "10%", "tail_delay": "2s", "threads": 1, "drain_timeout": 5},
    "tiers": [
        {"type": "cpu", "capacity": "16MiB", "name": "cpu", "copy_threads": 1},
        {
            "type": "disk", "path": "/nowhere/sgkv", "capacity": "1GiB", "min_free": 0, "fsync": "none",
            "deadlines": {"contains": "50ms"}, "breaker": {"failures": 5, "cooldown": "1s"},
            "simulate": {"latency": "1ms", "bandwidth": "1GiB"}, "faults": {"seed": 1, "error": 0.1},
        },
    ],
}  # fmt: skip
TEXT = yaml.safe_dump(GOOD)
ODD = [
    "", "auto", "null", "~", "~nobody/x", "0", "-1", "1e400", "nan", "inf", "%", "100%", "1e3GiB", "9" * 5000,
    "/a\0b", "/\ud800", "../x", "$(x)", "!!", "[", "{", "0x10", 10**30, -(10**400), 10**400, float("inf"),
    float("nan"), 2**63, True, None, [], {}, [[]], {"0": 1}, {"999999999999": 1},
]  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(tree: object, path: tuple = ()) -> list[tuple]:
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(below for key, child in children for below in places(child, (*path, key)))]


PLACES = places(GOOD)[1:]


def changed(path: tuple, value: object) -> dict:
    tree = json.loads(json.dumps(GOOD))
    node = tree
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return tree


bounded = settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(type(value)))
def test_every_field_takes_or_refuses_odd_values(value: object) -> None:
    for path in PLACES:
        read_extra_config(changed(path, value))


@bounded
@given(st.sampled_from(PLACES), values)
def test_any_value_anywhere(path: tuple, value: object) -> None:
    read_extra_config(changed(path, value))


@bounded
@given(
    st.dictionaries(st.text(max_size=12) | st.sampled_from(["config", "tiers", "model"]), values, max_size=4)
)
def test_any_extra_config(options: dict[str, object]) -> None:
    read_extra_config(options)


@bounded
@given(
    st.dictionaries(
        st.from_regex(r"SGKV__[A-Z0-9_]{0,24}", fullmatch=True)
        | st.sampled_from(["SGKV_CONFIG", "SGKV__TIERS__0__CAPACITY", "SGKV__TIERS__9", "SGKV__TIERS"]),
        st.text(st.characters(exclude_characters="\0"), max_size=20)
        | st.sampled_from(["[", "{}", '{"a":1}']),
        max_size=4,
    )
)
def test_any_environment(environ: dict[str, str]) -> None:
    read_environment(environ)


@bounded
@given(st.sampled_from([".yaml", ".toml", ".json", ""]), st.binary(max_size=200) | st.text(max_size=100))
def test_any_file(tmp_path: Path, ending: str, content: bytes | str) -> None:
    path = tmp_path / f"c{ending}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    read_config_file(path)


@bounded
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(TEXT)), st.sampled_from([*"[]{}:-!&*'\"#|>%@`\t\n\0?,", "!!int ", "<<: "])
        ),
        max_size=5,
    )
)
def test_a_file_with_slips_of_the_keyboard(tmp_path: Path, slips: list[tuple[int, str]]) -> None:
    text = TEXT
    for at, slip in slips:
        text = text[:at] + slip + text[at:]
    path = tmp_path / "c.yaml"
    path.write_text(text)
    read_config_file(path)


@bounded
@given(
    st.text(max_size=40)
    | st.sampled_from(["[" * 20_000, '{"a":' * 20_000, "null", "[]", "@", "@/nowhere.json"])
)
def test_any_text_of_sglangs_flag(text: str) -> None:
    try:
        extra, _ = expand(text)
    except ValueError:
        return
    assert extra["backend_name"] == "sgkv"


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.sampled_from([b"[1]", b"5", b"[" * 20_000, b'{"a": 1, "a": 2}']))
def test_any_model_configuration_is_an_identity(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert fingerprint(tmp_path)


@pytest.mark.parametrize(
    "name", ["SGKV__" + "A__" * 5000 + "B", "SGKV__TIERS__" + "9" * 5000, "SGKV__TIERS__5", "SGKV__"]
)
def test_names_of_variables_that_lead_nowhere(name: str) -> None:
    assert read_environment({name: "1"}) is None


def test_items_of_a_list_by_numbers_of_several_digits() -> None:
    """Ten comes after nine."""
    tiers = {
        str(at): {"type": "disk", "name": f"d{at}", "path": f"/nowhere/{at}", "capacity": "1GiB"}
        for at in range(1, 12)
    }
    loaded = read_extra_config({"tiers": {"0": {"capacity": "16MiB"}, **tiers}})
    assert loaded is not None
    assert [tier.name for tier in loaded.config.tiers][9:] == ["d9", "d10", "d11"]
