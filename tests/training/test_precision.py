import pytest
import torch

from beamwood.training.precision import flushed_subnormals, has_bfloat16, subnormals_are_flushed


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True}, False),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
    ],
)
def test_bfloat16_is_used_where_the_cpu_multiplies_it(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert has_bfloat16() is expected


def test_a_torch_without_cpu_capabilities_uses_float32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert has_bfloat16() is False


@pytest.fixture
def can_flush():
    able = torch.set_flush_denormal(True)
    torch.set_flush_denormal(False)
    if not able:
        pytest.skip("this processor cannot flush subnormal numbers")


def test_subnormals_are_flushed_only_inside_the_context(can_flush):
    assert not subnormals_are_flushed()
    with flushed_subnormals():
        assert subnormals_are_flushed()
    assert not subnormals_are_flushed()
    with pytest.raises(ValueError, match="within"), flushed_subnormals():
        raise ValueError("within")
    assert not subnormals_are_flushed()


def test_an_earlier_flush_setting_is_restored(can_flush):
    torch.set_flush_denormal(True)
    try:
        with flushed_subnormals():
            pass
        assert subnormals_are_flushed()
    finally:
        torch.set_flush_denormal(False)
