"""The cache of compiled code: hits, damage, bounds, several processes, folders that cannot be used."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime import handwritten as kernels
from thunder_fuser import config
from thunder_fuser.errors import CompileError
from thunder_fuser.runtime import cache
from thunder_fuser.runtime.cache import KernelCache
from thunder_fuser.runtime.compile_pool import CompilePool
from thunder_fuser.runtime.host import backend, toolchain
from thunder_fuser.runtime.options import CompileOptions

LIMIT = 2**20


def never() -> bytes:
    raise AssertionError("compiled although it was in the cache")


def entries(folder: Path) -> list[Path]:
    return [p for p in (folder / "entries").rglob("*") if p.is_file()]


def test_hit_in_memory_and_on_disk(tmp_path):
    first = KernelCache(tmp_path, LIMIT)
    assert first.get_or_compile("a", lambda: b"one") == b"one"
    assert first.get_or_compile("a", never) == b"one"
    assert (first.hits, first.disk_hits, first.misses) == (1, 0, 1)
    second = KernelCache(tmp_path, LIMIT)
    assert second.get_or_compile("a", never) == b"one"
    assert second.get_or_compile("b", lambda: b"two") == b"two"
    assert (second.hits, second.disk_hits, second.misses) == (1, 1, 1)


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "swap"])
def test_a_damaged_entry_is_compiled_again(tmp_path, damage):
    KernelCache(tmp_path, LIMIT).get_or_compile("a", lambda: b"good" * 100)
    (entry,) = entries(tmp_path)
    content = bytearray(entry.read_bytes())
    if damage == "flip":
        content[17] ^= 1
    elif damage == "truncate":
        del content[200:]
    elif damage == "empty":
        content.clear()
    else:  # a sound entry, but another key's
        KernelCache(tmp_path, LIMIT).get_or_compile("b", lambda: b"other" * 100)
        (other,) = set(entries(tmp_path)) - {entry}
        content = bytearray(other.read_bytes())
    entry.write_bytes(content)
    after = KernelCache(tmp_path, LIMIT)
    assert after.get_or_compile("a", lambda: b"good" * 100) == b"good" * 100
    assert (after.damaged, after.misses) == (1, 1)
    assert KernelCache(tmp_path, LIMIT).get_or_compile("a", never) == b"good" * 100


def test_the_folder_stays_within_its_limit(tmp_path):
    store = KernelCache(tmp_path, LIMIT)
    for i in range(20):
        store.get_or_compile(str(i), lambda i=i: bytes([i]) * 200_000)
    assert 0 < sum(p.stat().st_size for p in entries(tmp_path)) <= LIMIT
    assert KernelCache(tmp_path, LIMIT).get_or_compile("19", never) == bytes([19]) * 200_000


def test_a_folder_that_cannot_be_made_is_one_warning_and_memory(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(UserWarning, match="kept in memory only; THUNDER_FUSER_CACHE_DIR") as seen:
        store = KernelCache(blocked / "kernels", LIMIT)
        assert store.get_or_compile("a", lambda: b"one") == b"one"
        assert store.get_or_compile("a", never) == b"one"
    assert len(seen) == 1 and str(blocked) in str(seen[0].message)


def test_a_folder_that_cannot_be_written_is_one_warning_and_still_read(tmp_path):
    KernelCache(tmp_path, LIMIT).get_or_compile("a", lambda: b"one")
    store = KernelCache(tmp_path, LIMIT)
    shutil.rmtree(tmp_path / "tmp")
    (tmp_path / "tmp").write_text("")
    with pytest.warns(UserWarning, match="cannot be written") as seen:
        assert store.get_or_compile("b", lambda: b"two") == b"two"
        assert store.get_or_compile("c", lambda: b"three") == b"three"
    assert len(seen) == 1
    assert store.get_or_compile("a", never) == b"one" and store.get_or_compile("b", never) == b"two"


def test_off_keeps_no_folder():
    with config.override(cache_dir="off"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.current().folder is None
        assert cache.current().get_or_compile("test_off", lambda: b"x") == b"x"


def test_default_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / "thunder_fuser"


def test_two_processes_share_a_folder(tmp_path):
    program = f"""
import random, sys
from pathlib import Path
from thunder_fuser.runtime.cache import KernelCache
order = random.Random(int(sys.argv[1]))
for _ in range(150):
    store = KernelCache(Path({str(tmp_path)!r}), 100_000)
    i = order.randrange(20)
    value = bytes([i]) * (5_000 + i)
    assert store.get_or_compile(str(i), lambda: value) == value
    assert store.damaged == 0
"""
    running = [subprocess.Popen([sys.executable, "-c", program, str(i)], stderr=subprocess.PIPE) for i in range(2)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert sum(p.stat().st_size for p in entries(tmp_path)) <= 110_000


def test_keys_differ_by_all_that_decides_the_code(monkeypatch):
    source, options = kernels.COPY, CompileOptions()
    changed = [replace(options, max_registers=32), replace(options, lineinfo=True), replace(options, fast_math=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changed += [replace(options, fma=False), replace(options, opt_level=1)]
    keys = [cache.cubin_key(source, "sm_90", o) for o in (options, *changed)]
    keys += [cache.cubin_key(source, "sm_80", options), cache.cubin_key(kernels.ROW_SUM, "sm_90", options)]
    keys += [cache.cubin_key(replace(source, text=source.text + " "), "sm_90", options)]
    monkeypatch.setattr(cache.nvrtc, "nvrtc_version", lambda: "99.9")
    keys += [cache.cubin_key(source, "sm_90", options), cache.host_key(source, options), cache.fibers_key()]
    monkeypatch.setattr(toolchain, "_version", lambda path: "another compiler")
    keys += [cache.host_key(source, options), cache.fibers_key()]
    assert len(set(keys)) == len(keys)


def test_pool_compiles_each_source_once(tmp_path):
    with config.override(cache_dir=str(tmp_path)):
        pool = CompilePool()
        misses = 2 if backend.fibers_loaded() else 3  # the cubin, the library, and once a process the fibers
        futures = [pool.cubin(kernels.COPY, "sm_90") for _ in range(5)] + [pool.host_kernel(kernels.COPY) for _ in range(5)]
        assert len({id(f.result()) for f in futures}) == 2
        assert pool.compiled == 2 and cache.current().misses == misses
        again = CompilePool()
        assert again.cubin(kernels.COPY, "sm_90").result() == futures[0].result()
        assert cache.current().misses == misses


def test_pool_forgets_failures_and_old_kernels(tmp_path):
    with config.override(cache_dir=str(tmp_path)):
        pool = CompilePool(limit=2)
        bad = replace(kernels.COPY, text=kernels.COPY.text.replace("if (i + 8 <= n)", "if (i + 8 <= m)"))
        for attempt in (1, 2):
            with pytest.raises(CompileError, match='"m" is undefined'):
                pool.cubin(bad, "sm_90").result()
            assert pool.compiled == attempt
        held = pool.host_kernel(kernels.BLOCKS).result()
        for arch in ("sm_80", "sm_86", "sm_90"):
            pool.cubin(kernels.BLOCKS, arch).result()
        assert pool.host_kernel(kernels.BLOCKS).result() is not held
