"""The two programs of nvFuser issue 2613, on inputs of the issue's shapes and strides."""

from __future__ import annotations

from types import ModuleType

import torch


def _bits(t: torch.Tensor) -> torch.Tensor:
    return t.view(torch.int16)


def _own_inputs(device: str) -> list[torch.Tensor]:
    """What the issue gives to the first program: separate buffers, strided, one of them empty."""
    strides = (589824, 32, 576, 1)

    def strided(numel: int, size: tuple[int, ...]) -> torch.Tensor:
        return torch.randn((numel,), dtype=torch.bfloat16, device=device).as_strided(size, strides)

    tables = [torch.randn((32768,), dtype=torch.bfloat16, device=device).as_strided((1024, 32), (32, 1)) for _ in range(2)]
    return [*tables, strided(1179568, (2, 16, 1024, 16)), strided(1179568, (2, 16, 1024, 16)),
            strided(0, (2, 16, 1024, 0)), strided(1179584, (2, 16, 1024, 32))]


def test_first_program(issue_2613: ModuleType, device: str) -> None:
    inputs = _own_inputs(device)
    (out,) = issue_2613.define(issue_2613.nvfuser_fusion_id0).execute(inputs)
    assert out.dtype is torch.bfloat16 and out.shape == (2, 16, 1024, 32)
    torch.testing.assert_close(out.double(), issue_2613.reference(inputs), rtol=2**-8, atol=2**-8)


def test_second_program(issue_2613: ModuleType, device: str) -> None:
    cos, sin, packed = inputs = issue_2613.packed_inputs(device)
    (out,) = issue_2613.define(issue_2613.nvfuser_fusion_id1).execute(inputs)
    heads = packed.double().reshape(2, 1024, 18, 32).permute(0, 2, 1, 3)[:, :16]
    turned = torch.cat([-heads[..., 16:], heads[..., :16]], -1)
    torch.testing.assert_close(out.double(), heads * cos.double() + turned * sin.double(), rtol=2**-8, atol=2**-8)


def test_first_program_given_the_views_of_the_second(issue_2613: ModuleType, device: str) -> None:
    packed = issue_2613.packed_inputs(device)
    (plain,) = issue_2613.define(issue_2613.nvfuser_fusion_id0).execute(issue_2613.views_of(packed))
    (meta,) = issue_2613.define(issue_2613.nvfuser_fusion_id1).execute(packed)
    assert torch.equal(_bits(plain), _bits(meta))


def test_validate_accepts_both(issue_2613: ModuleType, device: str) -> None:
    packed = issue_2613.packed_inputs(device)
    issue_2613.define(issue_2613.nvfuser_fusion_id0).validate(issue_2613.views_of(packed))
    issue_2613.define(issue_2613.nvfuser_fusion_id1).validate(packed)
