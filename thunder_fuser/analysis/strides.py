"""Which strides torch gives a new tensor or a view: the rules, as functions of sizes and strides alone.

Called by `layout`. No torch call is made here: each rule restates what eager torch does and is tested against it.
Sizes and strides are tuples of ints, strides in elements. All functions are pure and their results are cached, since
a program asks the same few questions for thousands of nodes.
"""

from __future__ import annotations

from functools import lru_cache

Ints = tuple[int, ...]

# Memory order of the dims, innermost first, in torch's channels-last formats.
_CHANNELS_LAST: dict[int, Ints] = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}
_CACHE = 4096


@lru_cache(_CACHE)
def contiguous(shape: Ints) -> Ints:
    """Row-major strides; a size of 0 counts as 1."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if n > 1 else 1
    return tuple(reversed(strides))


@lru_cache(_CACHE)
def ordered(shape: Ints, innermost_first: Ints) -> Ints:
    """Strides of an allocation with an explicit dim order; a size of 0 makes the strides outside it 0."""
    strides, step = [0] * len(shape), 1
    for d in innermost_first:
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


@lru_cache(_CACHE)
def is_contiguous(shape: Ints, strides: Ints) -> bool:
    """`Tensor.is_contiguous()`: strides of size-1 dims do not matter, and no strides matter without elements."""
    return 0 in shape or _dense_in_order(shape, strides, range(len(shape) - 1, -1, -1))


@lru_cache(_CACHE)
def is_non_overlapping_and_dense(shape: Ints, strides: Ints) -> bool:
    """Whether the elements fill a range of memory, each place once, in any dim order."""
    if is_contiguous(shape, strides):
        return True
    return _dense_in_order(shape, strides, sorted(range(len(shape)), key=lambda d: (shape[d] == 1, strides[d])))


@lru_cache(_CACHE)
def suggests_channels_last(shape: Ints, strides: Ints) -> bool:
    """Whether `suggest_memory_format` says channels-last (2-D or 3-D images): strides grow in that dim order. Where
    size-1 dims leave it open, torch means contiguous."""
    order = _CHANNELS_LAST.get(len(shape))
    if order is None or strides[1] == 0:
        return False
    least = 0
    for d in order:
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * shape[d]
    return True


def suggested(shape: Ints, channels_last: bool) -> Ints:
    """Strides of a new tensor of `shape` in the memory format that `suggests_channels_last` found."""
    return ordered(shape, _CHANNELS_LAST[len(shape)]) if channels_last else contiguous(shape)


@lru_cache(_CACHE)
def like(shape: Ints, strides: Ints) -> Ints:
    """`empty_like` and `clone` with preserve_format: dense strides are kept, others are made dense in their order."""
    if is_non_overlapping_and_dense(shape, strides):
        return strides
    out, step = [0] * len(shape), 1
    for d in _sorted_dims(shape, (strides,)):
        out[d] = step
        step *= shape[d]
    return tuple(out)


@lru_cache(_CACHE)
def converted(shape: Ints, strides: Ints) -> Ints:
    """`Tensor.to(dtype)`."""
    return like(shape, strides)


@lru_cache(_CACHE)
def elementwise(shape: Ints, operands: tuple[Ints, ...], with_number: bool) -> Ints:
    """The output of TensorIterator for operands that all have `shape`. A number among the operands of a tensor with
    dims (`with_number`) is a tensor of rank 0 to torch, which rules out the short cuts."""
    if not operands:
        return contiguous(shape)
    if not with_number or not shape:
        if all(is_contiguous(shape, s) for s in operands):
            return contiguous(shape)
        if len(shape) == 4 and all(_dense_in_order(shape, s, _CHANNELS_LAST[4]) for s in operands):
            return ordered(shape, _CHANNELS_LAST[4])
        first = operands[0]
        if all(s == first for s in operands) and is_non_overlapping_and_dense(shape, first):
            return first
    order = _sorted_dims(shape, operands)
    if all(d == len(shape) - 1 - i for i, d in enumerate(order)):
        return contiguous(shape)
    return ordered(shape, order)


@lru_cache(_CACHE)
def viewed(shape: Ints, strides: Ints, new: Ints) -> Ints | None:
    """Strides of `view(new)`, or None where torch refuses it, so that a reshape copies."""
    if not shape:
        return (1,) * len(new)
    if 0 in shape:
        return strides if shape == new else contiguous(new)
    out, left = [0] * len(new), len(new)
    base, chunk, taken = strides[-1], 1, 1
    for d in range(len(shape) - 1, -1, -1):
        chunk *= shape[d]
        if d and (shape[d - 1] == 1 or strides[d - 1] == chunk * base):
            continue  # dim d - 1 goes on where this chunk of memory ends
        while left and (taken < chunk or new[left - 1] == 1):
            left -= 1
            out[left] = taken * base
            taken *= new[left]
        if taken != chunk:
            return None
        base, chunk, taken = strides[d - 1], 1, 1
    return None if left else tuple(out)


@lru_cache(_CACHE)
def broadcast(shape: Ints, strides: Ints, dims: Ints, out: Ints) -> Ints:
    """Strides of `unsqueeze` for each new dim, outermost first, and one `expand` to `out` (how Thunder runs
    broadcast_in_dim): a new dim of size 1 has the stride that torch's unsqueeze gives it."""
    result, k = [], 0
    for d, n in enumerate(out):
        if k < len(dims) and dims[k] == d:
            result.append(strides[k] if shape[k] == n else 0)
            k += 1
        elif n != 1:
            result.append(0)
        else:
            result.append(shape[k] * strides[k] if k < len(shape) else 1)
    return tuple(result)


def _dense_in_order(shape: Ints, strides: Ints, innermost_first: object) -> bool:
    step = 1
    for d in innermost_first:
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True


def _sorted_dims(shape: Ints, operands: tuple[Ints, ...]) -> Ints:
    """Dims from innermost to outermost as TensorIterator sorts them: an insertion sort from row-major order, in which
    the first operand that can tell two dims apart decides; stride 0 tells nothing."""
    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        moving = i
        for j in range(i - 1, -1, -1):
            verdict = _compare(shape, operands, order[j], order[moving])
            if verdict > 0:
                order[j], order[moving] = order[moving], order[j]
                moving = j
            elif verdict < 0:
                break
    return tuple(order)


def _compare(shape: Ints, operands: tuple[Ints, ...], a: int, b: int) -> int:
    for strides in operands:
        if strides[a] == 0 or strides[b] == 0:
            continue
        if strides[a] != strides[b]:
            return -1 if strides[a] < strides[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0
