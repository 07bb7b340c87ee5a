import pytest
import torch

from beamwood.training.precision import has_bfloat16


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True}, False),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
    ],
)
def test_bfloat16_is_used_where_the_processor_multiplies_it(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert has_bfloat16() is expected


def test_a_torch_that_does_not_say_means_float32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert has_bfloat16() is False
