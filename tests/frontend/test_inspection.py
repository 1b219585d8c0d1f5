"""What scripts look at: `fd.fusion`, `fd.fec`, and sentences for what is scheduled by hand."""

from __future__ import annotations

import re

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import InputError, UnsupportedError


def _product() -> FusionDefinition:
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.exp(fd.ops.matmul(fd.ops.neg(a), b)))
    return fd


def test_fusion_prints_what_there_is(capsys: pytest.CaptureFixture[str], device: str) -> None:
    fd = _product()
    fd.fusion.print_math()
    assert capsys.readouterr().out == f"{fd!r}\n" and [repr(s) for s in (*fd.fusion.inputs(), *fd.fusion.outputs())] == ["T0", "T1", "T4"]
    with pytest.raises(InputError, match="has not run yet"):
        fd.fusion.print_kernel()
    x = torch.randn(3, 3, device=device)
    fd.execute([x, x])
    fd.fusion.print_math()
    shown = capsys.readouterr().out
    assert re.findall(r"^(?:fusion \w+|torch \w+ = \w+)", shown, re.MULTILINE) == [
        f"fusion nvfuser_fusion_id{fd.id}_0", "torch T3 = matmul", f"fusion nvfuser_fusion_id{fd.id}_1"]
    assert "neg(T0)" in shown and "exp(T3)" in shown
    fd.fusion.print_kernel()
    assert capsys.readouterr().out.count("__global__") == 2


def test_executor_cache_knows_what_was_compiled(device: str) -> None:
    fd, x = _product(), torch.randn(4, 4, device=device)
    assert not fd.fec.is_compiled([x, x])
    for look in (fd.fec.get_cuda_kernel, fd.fec.get_scheduled_ir):
        with pytest.raises(InputError, match="Nothing is compiled for inputs of these sizes"):
            look([x, x])
    with pytest.raises(InputError, match="has not run yet"):
        fd.fec.get_most_recent_scheduled_ir()
    fd.execute([x, x])
    small = torch.randn(2, 2, device=device)
    fd.execute([small, small])
    assert fd.fec.is_compiled([x, x]) and fd.fec.is_compiled([small, small]) and not fd.fec.is_compiled([x, small])
    assert fd.fec.get_cuda_kernel([small, small]) == fd.last_cuda_code()
    assert len(fd.fec.get_cuda_kernel([x, x], intrinsic_code=True)) > len(fd.fec.get_cuda_kernel([x, x])) > 0
    assert fd.fec.get_most_recent_scheduled_ir() == fd.fec.get_scheduled_ir([small, small])
    assert fd.fec.get_scheduled_ir([x, x]).count("kernel ") == 2
    with pytest.raises(UnsupportedError, match="runs on one device"):
        fd.fec.get_output_shardings()
    with pytest.raises(InputError, match="Input 1 .* expected a tensor"):
        fd.fec.is_compiled([x, 2.0])


def test_schedules_by_hand_are_refused_in_a_sentence() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.neg(t))
    for call, sentence in (
        (lambda: fd.sched.split(t, 0, 4), "'fd.sched.split' is not supported: the engine schedules, leave the schedule out."),
        (lambda: fd.sched.find_compatible_schedulers(), "'fd.sched.find_compatible_schedulers' is not supported"),
        (lambda: t.split(0, 4), "'TensorView.split' is not supported: the engine schedules"),
        (lambda: t.set_device_mesh(None), "'TensorView.set_device_mesh' is not supported: a definition runs on one device"),
        (lambda: fd.manual_execute([torch.ones(2, 2)], object()), "'manual_execute' with heuristic_params is not supported"),
        (lambda: fd.execute([torch.ones(2, 2)], auto_schedule=False), "auto_schedule=False is not supported"),
    ):
        with pytest.raises(UnsupportedError, match=re.escape(sentence)):
            call()
    assert torch.equal(fd.manual_execute([torch.ones(2, 2)])[0], -torch.ones(2, 2))


@pytest.mark.parametrize("op, sentence", [
    ("scaled_mm", "Op 'scaled_mm' is not supported: scale the operands with 'mul'"),
    ("cutlass_nvfp4_grouped_mm", "Op 'cutlass_nvfp4_grouped_mm' is not supported: scale the operands"),
    ("nv_block_quantize", "Op 'nv_block_quantize' is not supported: quantise with torch"),
    ("batch_norm", "Op 'batch_norm' is not supported: write it with 'var_mean'"),
])
def test_ops_out_of_reach_say_what_to_do(op: str, sentence: str) -> None:
    with FusionDefinition() as fd, pytest.raises(UnsupportedError, match=re.escape(sentence)):
        getattr(fd.ops, op)(fd.define_tensor([-1], dtype=DataType.BFloat16))
