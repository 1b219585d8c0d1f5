"""How a definition is written, run, cached, checked and printed."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import InputError, IRError, UnsupportedError
from thunder_fuser.frontend import calls


def _double(shape: list[int] | None = None, dtype: DataType = DataType.Float, **keywords: object) -> FusionDefinition:
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=shape or [-1, -1], dtype=dtype, **keywords)
        fd.add_output(fd.ops.add(t, t))
    return fd


# writing


def test_importing_does_not_import_thunder() -> None:
    code = "import sys, thunder_fuser; from thunder_fuser import FusionDefinition, DataType; assert 'thunder' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_subclass_with_a_definition() -> None:
    class Double(FusionDefinition):
        def definition(self) -> None:
            t = self.define_tensor(shape=[-1], dtype=DataType.Float)
            self.add_output(self.ops.add(t, t))

    x = torch.randn(5)
    fd = Double()
    for _ in range(2):
        (out,) = fd.execute([x])
        assert torch.equal(out, x + x)


def test_claims_about_strides_are_not_trusted(device: str) -> None:
    fd = _double(contiguity=[True, True], stride_order=[1, 0])
    for x in (torch.randn(4, 6, device=device).t(), torch.randn(1, 6, device=device).expand(4, 6),
              torch.randn(4, 1, device=device).expand(4, 6), torch.randn(9, 9, device=device)[::2, 1::3]):
        (out,) = fd.execute([x])
        assert torch.equal(out, x + x)


@pytest.mark.parametrize("sizes, strides, static, fits, misfits", [
    ([4, 1], [1, 1], False, [(4, 1), (9, 1)], [(4, 2)]),
    ([4, 6], [6, 1], True, [(4, 6)], [(4, 5)]),
])
def test_define_tensor_by_sizes_and_strides(sizes, strides, static, fits, misfits) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor(sizes=sizes, strides=strides, dtype=DataType.Float, static_sizes=static)
        fd.add_output(fd.ops.neg(t))
    with FusionDefinition() as positional:
        t = positional.define_tensor(sizes, strides, static_sizes=static)
        positional.add_output(positional.ops.neg(t))
    for fusion in (fd, positional):
        for shape in fits:
            x = torch.randn(shape)
            assert torch.equal(fusion.execute([x])[0], -x)
        for shape in misfits:
            with pytest.raises(InputError, match="expected"):
                fusion.execute([torch.randn(shape)])


def test_from_pytorch_describes_the_tensor() -> None:
    x = torch.randn(2, 1, 5, 3).permute(0, 3, 1, 2).bfloat16()
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        s = fd.from_pytorch(x, static_sizes=True)
        fd.add_output(fd.ops.add(t, s))
    assert (t.ndim, t.dtype, t.is_tensor) == (4, DataType.BFloat16, True)
    assert "shape=[-1, -1, 1, -1], contiguity=[True, True, None, True]" in repr(fd) and "stride_order=[3, 0, 2, 1]" in repr(fd)
    (out,) = fd.execute([x, x])
    assert torch.equal(out, x.float() + x.float())
    with pytest.raises(InputError, match="Input 1 .* has size 4 in dim 0, expected 2"):
        fd.execute([torch.randn(4, 3, 1, 5).bfloat16()] * 2)


def test_properties_of_symbols() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, 3], dtype=DataType.Half)
        n, s, k = t.size(1), fd.define_scalar(None, DataType.Int), fd.define_scalar(3)
        assert t.dtype() is t.dtype is DataType.Half and t.ndim == 2 and len(t.shape()) == 2
        assert n.is_symbolic and s.is_symbolic and not k.is_symbolic and k.value == 3 and not k.is_tensor
        with pytest.raises(IRError, match="cannot decide an 'if'"):
            bool(s < 3)


def test_outputs_returned_twice_are_two_tensors(device: str) -> None:
    x = torch.randn(3, 4, device=device)
    with FusionDefinition() as fd:
        y = fd.ops.neg(fd.from_pytorch(x))
        fd.add_output(y)
        fd.add_output(y)
    a, b = fd.execute([x])
    assert torch.equal(a, -x) and torch.equal(b, -x) and a.data_ptr() != b.data_ptr()


# running


def test_specialisations_are_cached_by_shape_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_SPECIALIZATIONS", 3)
    fd = _double()
    for n in [3, 4, 3, 4, 3]:
        x = torch.randn(n, 2)
        assert torch.equal(fd.execute([x])[0], x + x)
    assert len(fd._calls.known) == 2
    for n in range(5):
        fd.execute([torch.randn(1, n)])
    assert [key[0] for key in fd._calls.known] == [(1, 2), (1, 3), (1, 4)]


def test_zero_size_inputs(device: str) -> None:
    for shape in ((0, 3), (3, 0), (0, 0)):
        (out,) = _double().execute([torch.randn(shape, device=device)])
        assert out.shape == shape and out.dtype is torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bool])
def test_cpu_scalar_tensor_beside_cuda(dtype: torch.dtype) -> None:
    x, s = torch.randn(5, device="cuda"), torch.tensor(1, dtype=dtype)
    with FusionDefinition() as fd:
        t, c = fd.from_pytorch(x), fd.from_pytorch(s)
        fd.add_output(fd.ops.add(t, c))
    (out,) = fd.execute([x, s])
    assert torch.equal(out, x + s)
    (out,) = fd.execute([x, torch.zeros_like(s)])
    assert torch.equal(out, x)


def test_cpu_scalar_tensor_among_cpu_tensors() -> None:
    x, s = torch.randn(5), torch.tensor(0.25)
    with FusionDefinition() as fd:
        t, c = fd.define_tensor([-1]), fd.define_tensor([], is_cpu=True)
        fd.add_output(fd.ops.mul(t, c))
    assert torch.equal(fd.execute([x, s])[0], x * s)


def test_nvfuser_options_have_no_effect_and_say_so() -> None:
    x = torch.randn(2, 2)
    with pytest.warns(UserWarning, match="fast_math.* have no effect"):
        (out,) = _double().execute([x], _enable_options=["fast_math"])
    assert torch.equal(out, x + x)


def test_validate() -> None:
    x, fd = torch.randn(3, 3), _double()
    fd.validate([x])
    fd.validate([x], [x * 2])
    with pytest.raises(AssertionError, match="Output 0"):
        fd.validate([x], [x * 3])


def test_fusion_shows_the_sizes_of_the_last_call() -> None:
    fd = _double()
    with pytest.raises(InputError, match="has not run yet"):
        fd.fusion.fusions
    fd.execute([torch.randn(3, 7)])
    assert fd.fusion.fusions[0].inputs[0].shape == (3, 7)
    fd.execute([torch.randn(2, 5)])
    assert fd.fusion.fusions[0].inputs[0].shape == (2, 5) and str(fd.fusion)


# printing


def test_repr_rebuilds_the_definition(issue_2613) -> None:
    packed = issue_2613.packed_inputs("cpu")
    programs = (issue_2613.nvfuser_fusion_id0, issue_2613.nvfuser_fusion_id1)
    for program, inputs in zip(programs, (issue_2613.views_of(packed), packed)):
        fd = issue_2613.define(program)
        again = _rebuild(fd)
        assert repr(again).partition("\n")[2] == repr(fd).partition("\n")[2]
        assert torch.equal(again.execute(inputs)[0], fd.execute(inputs)[0])


def test_repr_of_special_values_and_defaults() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, 1, -1], dtype=DataType.Float)
        a, v = fd.define_scalar(None, DataType.Double), fd.define_vector(2)
        padded = fd.ops.pad(t, [1, 1], float("-inf"))
        fd.add_output(fd.ops.where(fd.ops.lt(padded, -0.0), float("nan"), fd.ops.mul(padded, a)))
        fd.add_output(fd.ops.reshape(fd.ops.squeeze(t, [1]), v))
        fd.add_output(fd.ops.sum(t, [0], keepdim=True, dtype=DataType.Double))
        fd.add_output(fd.ops.iota(v[0], step=2))
        fd.add_output(fd.ops.cat([t, t]))
        fd.add_output(fd.ops.slice(t, [0, 0, 0], [t.size(0), 1, 2], strides=[2, 1, 1]))
    x = torch.randn(4, 1, 6)
    again = _rebuild(fd)
    for out, expected in zip(again.execute([x, 0.5, [8, 3]]), fd.execute([x, 0.5, [8, 3]])):
        assert out.dtype is expected.dtype and torch.equal(out.nan_to_num(7.0), expected.nan_to_num(7.0))


def _rebuild(fd: FusionDefinition) -> FusionDefinition:
    names: dict[str, object] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    with FusionDefinition() as again:
        names[re.match(r"def (\w+)\(fd : FusionDefinition\) -> None :", repr(fd))[1]](again)
    return again


def test_repro_script_runs() -> None:
    fd = _double()
    with pytest.raises(InputError, match="save_repro_inputs=True"):
        fd.last_repro_script()
    fd.execute([torch.randn(6, 4).t()[1:]], save_repro_inputs=True)
    script = fd.last_repro_script()
    assert ".as_strided((3, 6), (1, 4))" in script
    subprocess.run([sys.executable, "-c", script], check=True)


def test_repro_script_of_indices_numbers_and_updates() -> None:
    """Random integers stay between those given, so that indices are in range."""
    table, ids, out = torch.randn(3, 4), torch.tensor([2, 0, 2, 1]), torch.zeros(4, 4)
    with FusionDefinition() as fd:
        w, i, o, s, v = fd.from_pytorch(table), fd.from_pytorch(ids), fd.from_pytorch(out), fd.define_scalar(None), fd.define_vector(1)
        rows = fd.ops.mul(fd.ops.index_select(w, i, 0), s)
        fd.add_output(rows, o)
        fd.add_output(fd.ops.full(v, float("nan"), DataType.Half))
        fd.add_output(fd.ops.matmul(rows, fd.ops.permute(w, [1, 0])))
    fd.execute([table, ids, out, float("inf"), [3]], save_repro_inputs=True)
    script = fd.last_repro_script()
    assert "torch.randint(0, 3, (4,)" in script and 'float("inf")' in script and script == fd.repro_script_for([table, ids, out, float("inf"), [3]])
    subprocess.run([sys.executable, "-c", script], check=True)


# refusing


@pytest.mark.parametrize("inputs, sentence", [
    ([], "The fusion takes 1 inputs, got 0."),
    ([torch.randn(2, 2), torch.randn(2, 2)], "The fusion takes 1 inputs, got 2."),
    ([3.0], "Input 0 (T0) is a 'float', expected a tensor."),
    ([torch.randn(2, 2).double()], "Input 0 (T0) has dtype 'torch.float64', expected 'torch.float32'."),
    ([torch.randn(2)], "Input 0 (T0) has 1 dims, expected 2."),
    ([torch.randn(2, 3)], "Input 0 (T0) has size 3 in dim 1, expected 4."),
    ([torch.randn(2, 4).to_sparse()], "Input 0 (T0) has layout 'torch.sparse_coo', expected 'torch.strided'."),
    ([torch.empty(2, 4, device="meta")], "Input 0 (T0) is on 'meta', expected a CPU or CUDA device."),
    (torch.randn(2, 4), "'execute' takes a list of inputs, got 'Tensor'."),
])
def test_wrong_inputs(inputs: list, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        _double([-1, 4]).execute(inputs)


def test_wrong_inputs_after_right_ones() -> None:
    """Calls are found by a key of their inputs: what does not fit is no hit, and says so as at the first call."""
    x, n = torch.randn(3, 4), 2
    with FusionDefinition() as fd:
        t, s, v = fd.define_tensor([-1, 4]), fd.define_scalar(None, DataType.Int), fd.define_vector(2)
        fd.add_output(fd.ops.mul(fd.ops.reshape(t, v), s))
    with FusionDefinition() as product:
        a, b = product.define_tensor([-1, 4]), product.define_tensor([-1, -1])
        product.add_output(product.ops.matmul(a, b))
    w = torch.randn(4, 2)
    assert torch.equal(fd.execute([x, n, [6, 2]])[0], x.reshape(6, 2) * 2) and torch.equal(product.execute([x, w])[0], x @ w)
    for given, sentence in (
        ([x.to_sparse(), n, [6, 2]], "has layout 'torch.sparse_coo'"), ([x.double(), n, [6, 2]], "has dtype 'torch.float64'"),
        ([x.to("meta"), n, [6, 2]], "is on 'meta'"), ([x[:, :3], n, [4, 3]], "has size 3 in dim 1, expected 4"),
        ([x, 2.0, [6, 2]], "is '2.0', expected an integer"),
        ([x, True, [6, 2]], "is 'True', expected an integer"), ([x, n, [6, 2.0]], "is '2.0', expected an integer"), ([x, n, 3], "expected a list of 2 numbers"),
        ([x, n, [6]], "expected a list of 2 numbers"), ([None, n, [6, 2]], "is a 'NoneType', expected a tensor"), ([x, n], "takes 3 inputs, got 2"),
        ([x, x, [6, 2]], "expected an integer"), ([x, n, [[6], 2]], "expected an integer"),
    ):
        with pytest.raises(InputError, match=re.escape(sentence)):
            fd.execute(given)
    for given, sentence in (([x.to_sparse(), w], "has layout 'torch.sparse_coo'"), ([x, w.half()], "has dtype 'torch.float16'")):
        with pytest.raises(InputError, match=re.escape(sentence)):
            product.execute(given)
    assert torch.equal(fd.execute((x, n, (6, 2)))[0], x.reshape(6, 2) * 2)


def test_views_that_torch_negates_when_read(device: str) -> None:
    z = torch.randn(4, dtype=torch.complex64, device=device)
    x = z.conj().imag
    assert x.is_neg()
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1])
        fd.add_output(fd.ops.add(t, 1.0))
    for given in (z.imag, x, z.imag):
        assert torch.equal(fd.execute([given])[0], given + 1.0)


def test_threads_share_a_definition() -> None:
    fd, failures = _double(), []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for k in range(40):
            x = torch.randn(1 + (seed + k) % 5, 3, generator=generator)
            if not torch.equal(fd.execute([x])[0], x + x):
                failures.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(fd.calls().known) == 5


def test_wrong_numbers_and_lists() -> None:
    with FusionDefinition() as fd:
        n, a, v = fd.define_scalar(None, DataType.Int), fd.define_scalar(None), fd.define_vector(2)
        fd.add_output(fd.ops.full(v, a, DataType.Float))
        fd.add_output(fd.ops.iota(n))
    for inputs, sentence in (
        ([2.5, 1.0, [2, 2]], "Input 0 (S0) is '2.5', expected an integer for a scalar of dtype 'DataType.Int'."),
        ([2, "x", [2, 2]], "Input 1 (S1) is ''x'', expected a number for a scalar of dtype 'DataType.Double'."),
        ([2, 1.0, [2]], "Input 2 (V2) is '[2]', expected a list of 2 numbers."),
    ):
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            fd.execute(inputs)


@pytest.mark.gpu
def test_wrong_devices() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        c = fd.define_tensor([-1], is_cpu=True)
        fd.add_output(fd.ops.add(fd.ops.add(x, y), c))
    gpu, cpu = torch.randn(3, device="cuda"), torch.randn(3)
    for inputs, device, sentence in (
        ([gpu, cpu, cpu], None, "Input 1 (T1) is on 'cpu', but Input 0 (T0) is on 'cuda:0'."),
        ([gpu, gpu, gpu], None, "Input 2 (T2) is on 'cuda:0', expected 'cpu' since it is declared with is_cpu=True."),
        ([gpu, gpu, cpu], None, "Input 2 (T2) is a CPU tensor of shape [3] in a call on 'cuda:0', expected a 0-dim one."),
        ([gpu, gpu, cpu], "cpu", "Input 0 (T0) is on 'cuda:0', but the call asks for device 'cpu'."),
    ):
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            fd.execute(inputs, device=device)


REFUSED = {
    "scaled_mm": (lambda fd, t: fd.ops.scaled_mm(t, t), UnsupportedError, "Op 'scaled_mm' is not supported: "),
    "alias of a result": (lambda fd, t: fd.add_output(t, fd.ops.neg(t)), IRError, "a tensor input as alias_input, got 'T1'"),
    "alias of a scalar": (lambda fd, t: fd.add_output(t, fd.define_scalar(None)), IRError, "a tensor input as alias_input, got 'S1'"),
    "alias of another dtype": (lambda fd, t: fd.add_output(fd.ops.lt(t, 0.0), t), IRError, "DataType.Bool and 2, got DataType.Float and 2"),
    "dtype": (lambda fd, t: fd.define_tensor([2], dtype=DataType.Float8_e8m0fnu), UnsupportedError, "Float8_e8m0fnu' is not"),
    "manual cat": (lambda fd, t: fd.ops.cat([t], 0, manual_padding=True), UnsupportedError, "manual_padding=True is not"),
    "arguments": (lambda fd, t: fd.ops.add(t), IRError, "'add': missing a required argument: 'rhs'"),
    "operand": (lambda fd, t: fd.ops.neg("x"), IRError, "'neg' takes a TensorView, a Scalar or a number, got ''x''"),
    "permute": (lambda fd, t: fd.ops.permute(t, [0]), IRError, "'permute' takes 2 dims for a tensor of rank 2"),
    "permute twice": (lambda fd, t: fd.ops.permute(t, [0, 0]), IRError, "names a dim twice"),
    "slice rank": (lambda fd, t: fd.ops.slice(t, [0], [1]), IRError, "'slice' takes 2 start_indices"),
    "slice negative": (lambda fd, t: fd.ops.slice(t, [-1, 0], [1, 1]), IRError, "start_indices of at least 0, got -1"),
    "slice backwards": (lambda fd, t: fd.ops.slice(t, [3, 0], [1, 1]), IRError, "not below start_indices, got 3:1"),
    "broadcast": (lambda fd, t: fd.ops.broadcast(t, [True, False]), IRError, "'broadcast' takes 2 entries that are False"),
    "broadcast_in_dim": (lambda fd, t: fd.ops.broadcast_in_dim(t, [2, 3], [1, 0]), IRError, "2 increasing broadcast_dims"),
    "pad": (lambda fd, t: fd.ops.pad(t, [1]), IRError, "'pad' takes two pad_widths"),
    "where": (lambda fd, t: fd.ops.where(t, t, t), IRError, "condition of dtype 'DataType.Bool', got 'DataType.Float'"),
    "cast": (lambda fd, t: fd.ops.cast(t, torch.float16), IRError, "'cast' takes a DataType as dtype"),
    "sizes": (lambda fd, t: fd.ops.reshape(t, [2.0]), IRError, "'reshape' takes integers in new_shape, got '2.0'"),
    "stride_order": (lambda fd, t: fd.ops.stride_order(t, [1, 1]), IRError, "a permutation of 0..1"),
    "scalar": (lambda fd, t: fd.define_scalar(1.5, dtype=DataType.Int), IRError, "cannot hold 1.5"),
    "tensor": (lambda fd, t: fd.define_tensor([2], contiguity=[True, True]), IRError, "takes 1 entries as contiguity, got 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_when_defined(case: str) -> None:
    body, error, sentence = REFUSED[case]
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], dtype=DataType.Float)
        with pytest.raises(error, match=re.escape(sentence)):
            body(fd, t)


def test_refused_with_the_sizes_of_a_call() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], dtype=DataType.Float)
        fd.add_output(fd.ops.reshape(t, new_shape=[4, 3]))
    assert fd.execute([torch.randn(2, 6)])[0].shape == (4, 3)
    with pytest.raises(IRError, match=re.escape("in 'T1 = fd.ops.reshape(T0, new_shape=[4, 3])'")):
        fd.execute([torch.randn(2, 5)])
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(fd.ops.add(x, y))
    with pytest.raises(IRError, match=re.escape("Shapes [3] and [4] do not broadcast together, in 'T2 = fd.ops.add(T0, T1)'")):
        fd.execute([torch.randn(3), torch.randn(4)])


def test_statements_outside_the_block() -> None:
    fd = FusionDefinition()
    with pytest.raises(IRError, match="belong inside 'with FusionDefinition"):
        fd.define_tensor([-1])
    with pytest.raises(IRError, match="is empty"):
        fd.execute([])
    done = _double()
    with pytest.raises(IRError, match="is complete"):
        done.define_scalar(1)
    with pytest.raises(IRError, match="is complete"), done:
        pass
    with FusionDefinition() as one:
        t = one.define_tensor([-1])
        with FusionDefinition() as two, pytest.raises(IRError, match="'neg' was given T0 of another FusionDefinition"):
            two.ops.neg(t)


def test_unknown_op_is_an_attribute_error() -> None:
    with FusionDefinition() as fd, pytest.raises(AttributeError, match="'frobnicate' is not an op"):
        fd.ops.frobnicate
    assert {"add", "cat", "reshape", "sum"} <= set(dir(fd.ops))
