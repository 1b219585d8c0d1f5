"""What the last execution ran: kernels, vector widths, allocations, and that view-only parts cost nothing."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import InputError


def test_both_programs_are_one_kernel_of_one_width(issue_2613: ModuleType, device: str) -> None:
    packed = issue_2613.packed_inputs(device)
    plain, meta = issue_2613.define(issue_2613.nvfuser_fusion_id0), issue_2613.define(issue_2613.nvfuser_fusion_id1)
    reports = []
    for fd, inputs in ((plain, issue_2613.views_of(packed)), (meta, packed)):
        (out,) = fd.execute(inputs)
        report = fd.report()
        assert len(report.kernels) == 1 and report.views == ()
        assert [(b.bytes, b.output) for b in report.buffers] == [(out.numel() * out.element_size(), True)]
        reports.append(report)
    assert [r.kernels[0].vector_bytes for r in reports] == [16, 16]


@pytest.mark.gpu
def test_the_view_part_allocates_nothing(issue_2613: ModuleType) -> None:
    packed = issue_2613.packed_inputs("cuda")
    fd = issue_2613.define(issue_2613.nvfuser_fusion_id1)
    fd.execute(packed)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    out = fd.execute(packed)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] - before == len(out) == 1


def test_views_alone_run_no_kernel(device: str) -> None:
    x = torch.randn(4, 6, 5, device=device)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        fd.add_output(fd.ops.permute(fd.ops.slice(t, [0, 1, 0], [4, 5, 5], [1, 2, 1]), [2, 0, 1]))
        fd.add_output(fd.ops.segment_set(fd.ops.reshape(t, [24, 5])))
    outs = fd.execute([x])
    report = fd.report()
    assert report.kernels == () and report.buffers == () and len(report.views) == 2
    for out, expected in zip(outs, (x[:, 1:5:2].permute(2, 0, 1), x.view(24, 5))):
        assert out.data_ptr() == expected.data_ptr() and out.stride() == expected.stride() and torch.equal(out, expected)
    assert fd.last_cuda_code() == ""


def test_inspection_follows_the_last_call(device: str) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], dtype=DataType.Float)
        fd.add_output(fd.ops.exp(t))
    for look in (fd.report, fd.last_cuda_code, lambda: fd.fusion.fusions):
        with pytest.raises(InputError, match="has not run yet: call 'execute' first"):
            look()
    for n in (64, 4096):
        fd.execute([torch.randn(n, device=device)])
        (kernel,) = fd.report().kernels
        assert kernel.bytes == 2 * 4 * n and kernel.source in fd.last_cuda_code() and "__global__" in kernel.source


def test_outputs_need_no_gradient(device: str) -> None:
    x = torch.randn(3, 4, device=device, requires_grad=True)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        fd.add_output(fd.ops.permute(t, [1, 0]))
        fd.add_output(fd.ops.neg(t))
    view, negated = fd.execute([x])
    assert not view.requires_grad and not negated.requires_grad
    assert torch.equal(view, x.detach().t()) and torch.equal(negated, -x.detach())
