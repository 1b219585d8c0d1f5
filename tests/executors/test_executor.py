"""The plug-in as people meet it: being found, options, fuel, callables, company; programs shared and compiled once."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import pytest
import thunder
import torch
from thunder.extend import FUEL_LEVEL

import thunder_fuser
from tests.executors.jitted import calls, forward, fusions, gradients, jit, rand, same
from thunder_fuser.executors import options


def test_importing_the_package_does_not_import_thunder():
    code = ("import sys; sys.modules['thunder'] = None\n"
            "import thunder_fuser, thunder_fuser.compiler, thunder_fuser.ir.builder\n"
            "assert not any(m.startswith(('thunder_fuser.executors', 'thunder_fuser.translators')) for m in sys.modules)\n"
            "assert {'executor', 'jit'} <= set(dir(thunder_fuser))\n")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_name_works_once_the_executor_is_imported():
    assert thunder.get_executor("thunder_fuser") is thunder_fuser.executor
    jitted = thunder.jit(lambda x: x * 2.0 + 1.0, executors=["thunder_fuser"], fuser_host=True)
    same(jitted(rand(3)), rand(3) * 2.0 + 1.0)
    assert len(fusions(forward(jitted))) == 1


def test_jit_puts_attention_first_and_leaves_cross_entropy_to_thunder():
    jitted = thunder_fuser.jit(lambda x: x * 2.0, fuser_host=True)
    jitted(rand(3))
    names = [ex.name for ex in thunder.compile_data(jitted).executors_list]
    assert names.index("sdpa") < names.index("thunder_fuser") < names.index("torch")
    assert "torchcompile_xentropy" not in names and len(fusions(forward(jitted))) == 1


def test_cpu_tensors_stay_with_torch_unless_asked(monkeypatch):
    def fused(**options):
        jitted = thunder.jit(lambda x: x * 2.0 + 1.0, executors=[thunder_fuser.executor], **options)
        same(jitted(rand(3)), rand(3) * 2.0 + 1.0)
        return len(fusions(forward(jitted)))

    monkeypatch.delenv("THUNDER_FUSER_HOST", raising=False)
    assert (fused(), fused(fuser_host=True)) == (0, 1)
    monkeypatch.setenv("THUNDER_FUSER_HOST", "1")
    assert (fused(), fused(fuser_host=False)) == (1, 0)


def test_fuel_stops_fusing_and_the_program_stays_right():
    def f(x, w):
        return torch.lerp(x, x * 2.0, 0.25) @ w * 2.0

    x, w = rand(3, 3), rand(3, 3)
    try:
        for fuel, expected in ((0, 0), (1, 1), (FUEL_LEVEL.UNLIMITED, 2)):
            thunder_fuser.executor.set_fuel(fuel)
            jitted = jit(f)
            same(jitted(x, w), f(x, w), rtol=1e-6, atol=1e-6)
            assert len(fusions(forward(jitted))) == expected
    finally:
        thunder_fuser.executor.set_fuel(FUEL_LEVEL.UNLIMITED)
    with pytest.raises(ValueError, match="-1"):
        thunder_fuser.executor.set_fuel(-1)
    with thunder_fuser.config.override(fuel=3):
        assert [ex.get_fuel() for ex in [type(thunder_fuser.executor)()] * 4] == [True, True, True, False]


def test_two_functions_in_one_process_share_programs_but_not_names(device):
    f, g = jit(lambda x: x * 2.0 + 1.0), jit(lambda y: y * 2.0 + 1.0)
    h = jit(lambda y: y * 2.0 + 1.5)
    x = rand(11, device=device)
    for _ in range(2):
        same(f(x), x * 2.0 + 1.0), same(g(x), x * 2.0 + 1.0), same(h(x), x * 2.0 + 1.5)
    programs = [calls(forward(j))["TFuser0"].program for j in (f, g, h)]
    assert programs[0] is programs[1] and programs[0] is not programs[2]


def test_equal_layers_compile_once(device):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.eye(6))

        def forward(self, x):
            return torch.tanh(x @ self.w) * 1.25 + x

    model = torch.nn.Sequential(*(Block() for _ in range(4))).to(device)
    jitted = jit(model)
    x = rand(3, 6, device=device)
    same(jitted(x), model(x), rtol=1e-5, atol=1e-5)
    used = list(calls(forward(jitted)).values())
    assert len(used) == 4 and len({id(c.program) for c in used}) == 1
    assert used[0].cache_info()["plans_made"] == 1


def test_fuse_called_again_by_another_pass_is_the_same_program():
    jitted = jit(lambda x: x * 2.0 + 1.0)
    jitted(rand(3))
    (fusion,) = fusions(forward(jitted))
    from thunder.executors.passes import update_fusion_call_ctx

    with thunder_fuser.config.override(host=True, fallback="error"):
        again = update_fusion_call_ctx(forward(jitted))
    (other,) = fusions(again)
    assert other.sym is not fusion.sym and calls(again)["TFuser0"].program is calls(forward(jitted))["TFuser0"].program
    same(again.python_callable()(rand(3)), rand(3) * 2.0 + 1.0)


def test_nothing_is_compiled_before_the_first_call(monkeypatch):
    from thunder_fuser.executors import program

    compiled = []
    monkeypatch.setattr(program, "compile_fusion", lambda *args, **kw: compiled.append(args) or (lambda x: [x * 7.0]))
    built = []
    executor, fuse = thunder_fuser.executor, thunder_fuser.executor.fuse
    monkeypatch.setattr(executor, "fuse", lambda *args: built.append(list(compiled)) or fuse(*args))
    jitted = jit(lambda x: x * 7.0 + 0.0 * x)
    jitted(rand(3))
    jitted(rand(3))
    assert built == [[]] and len(compiled) == 1


def test_threads_share_a_function(device):
    jitted = jit(lambda x: (torch.tanh(x) * 2.0)[1:])
    inputs = [rand(n, 3, device=device) for n in (4, 4, 4, 4)]
    jitted(inputs[0])
    failures = []

    def work(x):
        try:
            for _ in range(20):
                same(jitted(x), (torch.tanh(x) * 2.0)[1:], rtol=1e-6, atol=1e-6)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(x.t().contiguous().t() if i % 2 else x,)) for i, x in enumerate(inputs)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


class Probe(thunder.extend.FusionExecutor):
    """Another fusion executor: claims products, and refreshes every fusion that it finds, as those of Thunder do."""

    def __init__(self):
        super().__init__("probe")
        self.register_supported(thunder.core.prims.PrimIDs.MATMUL, lambda a, b: True)

    def fuse(self, region, counter):
        names = [v.proxy for v in region.inputs], [v.proxy for v in region.outputs]
        return self.register_temporary_operation(f"Probe{counter}", lambda a, b: [a @ b], inputs=names[0], outputs=names[1],
                                                 bsyms=region.bound_symbols)

    def fusion_pass(self, trace):
        from thunder.executors.passes import update_fusion_call_ctx
        from thunder.executors.utils import Region

        producers, consumers = thunder.core.utils.producers_and_consumers(trace)
        fused = thunder.core.trace.from_trace(trace)
        for i, b in enumerate(trace.bound_symbols):
            mine = not b.sym.is_fusion and self.can_fuse(b)
            fused.bound_symbols.append(self.fuse(Region(producers, consumers, [b]), i) if mine else b)
        return update_fusion_call_ctx(fused)


@pytest.mark.parametrize("order", [1, -1])
def test_next_to_another_fusion_executor(order):
    f = lambda x, w: torch.tanh(x * 2.0) @ w + 1.0  # noqa: E731
    jitted = thunder.jit(f, executors=[thunder_fuser.executor, Probe()][::order], fuser_host=True, fuser_fallback="error")
    x, w = rand(3, 4, grad=True), rand(4, 4, grad=True)
    for given, wanted in zip(gradients(jitted, (x, w)), gradients(f, (x, w))):
        same(given, wanted, rtol=1e-5, atol=1e-6)
    assert len(fusions(forward(jitted))) == 2 and "Probe" in str(forward(jitted))


@pytest.mark.long
def test_next_to_torch_compile():
    executors = [thunder_fuser.executor, "torchcompile"]
    jitted = thunder.jit(lambda x, w: torch.tanh(x * 2.0) @ w + 1.0, executors=executors, fuser_host=True)
    x, w = rand(3, 4), rand(4, 4)
    same(jitted(x, w), torch.tanh(x * 2.0) @ w + 1.0, rtol=1e-5, atol=1e-6)
    assert 1 <= len(fusions(forward(jitted))) <= 2 and "TorchCompile0" in str(forward(jitted))


def test_options_are_listed_as_used(capsys):
    given = {"fuser_host": True, "fuser_keep_rounding": True, "fuser_fallback": "torch"}
    assert given.keys() == options.OPTIONS.keys()
    jitted = thunder.jit(lambda x: x * 2.0, executors=["thunder_fuser"], fuser_hots=True, **given)
    jitted(rand(3))
    thunder.last_compile_options(jitted)
    used, unused = capsys.readouterr().out.split("Unused compile options")
    assert all(f"{name}. {options.OPTIONS[name].description}" in used for name in given)
    assert "fuser_hots" in unused and not any(name in unused for name in given)


def test_a_wrong_option_value_is_refused_with_one_sentence():
    with pytest.raises(thunder_fuser.errors.InputError, match="'fallback' was set to 'maybe'"):
        jit(lambda x: x * 2.0, fuser_fallback="maybe")(rand(3))


def test_the_callable_offers_what_people_know_from_other_fusers():
    jitted = jit(lambda x: x * 2.0 + 1.0)
    x = rand(3)
    jitted(x)
    call = calls(forward(jitted))["TFuser0"]
    assert call.name == "TFuser0" and repr(call).startswith("<TFuser0: 2 prims, 1 inputs, 1 outputs")
    assert call.last_inputs is None
    call.store_inputs = True
    jitted(x)
    assert call.last_inputs[0].data_ptr() == x.data_ptr()
    assert len(call.last_used.report().kernels) == 1 and "TFuser0" in str(call.fusion)
    call.cache_clear()
    assert call.last_used is None and call.cache_info() is None
    same(jitted(x), x * 2.0 + 1.0)


def test_a_fusion_symbol_survives_pickling():
    import pickle

    jitted = jit(lambda x: x * 2.0 + 1.0)
    jitted(rand(3))
    (fusion,) = fusions(forward(jitted))
    assert pickle.loads(pickle.dumps(fusion.sym)) is fusion.sym


@pytest.mark.parametrize("ops", [160])
def test_the_pass_is_linear_in_the_trace(ops):
    """Counted in calls of Python functions, not in seconds: four times the ops may not cost five times the calls."""
    from thunder_fuser.executors.fusion_pass import fuse_trace

    def calls_of(n):
        def f(x):
            for i in range(n):
                x = torch.tanh(x) * (1.0 + i)
            return x

        jitted = thunder.jit(f, executors=[thunder_fuser.executor], fuser_host=True, fuser_fallback="torch")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jitted(rand(2, grad=True))
        trace = next(t for t in thunder.last_traces(jitted) if "Grad transform" in str(t.get_provenance()))
        count = 0

        def counted(frame, event, arg):
            nonlocal count
            count += event == "call"

        with thunder_fuser.config.override(host=True):
            sys.setprofile(counted)
            try:
                fuse_trace(trace, thunder_fuser.executor.fuse, lambda: True)
            finally:
                sys.setprofile(None)
        return count

    assert calls_of(ops) < 5 * calls_of(ops // 4)
