"""Attention of new tokens over pages of codes (Gluon). One warp attends to one part of a row's pages for one KV head.

Codes are loaded as 32-bit words, in the order in which a matrix product takes its left operand, so they never pass
through shared memory. Rows of a product are tokens (for keys) or dims (for values); columns are query heads. The order
of the tokens does not matter, if weights and values use the same order. Codes need no decoding: the bits of a code,
taken as a float16, are exactly code * 2**-24. The scales of keys are multiplied into the queries, the scales of values
into the weights. The zeros (zero points) of keys take a separate product; the zeros of values are summed once.
"""

import triton.language as tl

from localctx.kernels.triton.layouts import INTERPRETED, async_copy, gl, jit, mma_v2

_HIDDEN = tl.constexpr(-1e30)
_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)
_CODE = tl.constexpr(16_777_216.0)  # converts the bits of a code, taken as a float16, to the code
_MOST = tl.constexpr(65_000.0)
_INTERPRETED = tl.constexpr(INTERPRETED)
WIDTH = 128  # of heads
MOST_HEADS = 8  # query heads of a KV head: the columns of a product
BITS = ((8, 8), (8, 4), (4, 4))  # of keys and values

_PAIRS = tl.constexpr(
    """{
    .reg .b32 low, high, one;
    prmt.b32 low, $8, $9, 0x5140;
    prmt.b32 high, $8, $9, 0x7362;
    prmt.b32 one, low, 0, 0x4140;
    mov.b32 {$0, $1}, one;
    prmt.b32 one, low, 0, 0x4342;
    mov.b32 {$2, $3}, one;
    prmt.b32 one, high, 0, 0x4140;
    mov.b32 {$4, $5}, one;
    prmt.b32 one, high, 0, 0x4342;
    mov.b32 {$6, $7}, one;
    }"""
)


@jit(do_not_specialize=["count", "per_head", "head_stride"])
def attend_parts(  # type: ignore[no-untyped-def]
    q, q_rotated, k_new, v_new, parts, addresses, formats, offsets,
    tails, filled, hidden, extra,
    out, tops, totals, masses, count, per_head, head_stride,
    scale, softcap, q_row, q_head, k_row, k_head, v_row, v_head,
    HEADS: tl.constexpr, GROUP: tl.constexpr, K_BITS: tl.constexpr, V_BITS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Attend to the pages of a batch of new tokens. Each program computes one KV head's query heads over one of
    ``parts``, or, from index ``count`` on, over the open page of a row. The results are merged later.
    ``triton.attention`` launches this kernel, or a slower kernel for pages that this kernel cannot read.
    """
    mma: tl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[1, 1], instr_shape=[16, 8])
    right: tl.constexpr = gl.DotOperandLayout(1, mma, 2)
    part, head = gl.program_id(0).to(tl.int64), gl.program_id(1)
    n = gl.arange(0, 8, layout=gl.SliceLayout(0, right))[None, :]
    d = gl.arange(0, 128, layout=gl.SliceLayout(1, right))[:, None]
    query = head * GROUP + gl.arange(0, 8, layout=gl.SliceLayout(0, mma))
    mine = query < head * GROUP + GROUP
    at = part * (HEADS * GROUP) + query
    if part < count:
        row, first = gl.load(parts + part * 4), gl.load(parts + part * 4 + 1).to(tl.int32)
        stop, skip = gl.load(parts + part * 4 + 2).to(tl.int32), gl.load(parts + part * 4 + 3).to(tl.int32)
        own = addresses + head * head_stride
        queries = q_rotated + row * q_row + (head * GROUP + n) * q_head
        kind = gl.load(formats + head * head_stride + first)
        if first >= stop:  # padding after the last row's parts, whose results are not read
            pass
        elif kind == 0:
            channel = (d >> 1 & 3) * 32 + (d >> 4) * 4 + (d >> 3 & 1) * 2 + (d & 1)
            asks = _half(gl.load(queries + channel, mask=n < GROUP, other=0))
            acc0, acc1, acc2, acc3, top, total = _over_pages(
                asks, own, offsets, extra, masses, head, query, mine, first, stop, skip, per_head, scale, softcap,
                K_BITS, V_BITS, CAPPED, mma,
            )  # fmt: skip
            _store_quarter(out, at, mine, acc0, 0, V_BITS, mma)
            _store_quarter(out, at, mine, acc1, 1, V_BITS, mma)
            _store_quarter(out, at, mine, acc2, 2, V_BITS, mma)
            _store_quarter(out, at, mine, acc3, 3, V_BITS, mma)
            gl.store(tops + at, top * _LN2, mask=mine)
            gl.store(totals + at, total, mask=mine)
        else:
            plain = _half(gl.load(queries + d, mask=n < GROUP, other=0))
            k_codes, v_codes = gl.load(offsets + kind * 6), gl.load(offsets + kind * 6 + 3)
            acc = gl.full((128, 8), 0, tl.float32, mma)
            top = gl.full((8,), _HIDDEN, tl.float32, gl.SliceLayout(0, mma))
            total = gl.full((8,), 0, tl.float32, gl.SliceLayout(0, mma))
            for page in range(first, stop):
                base = gl.load(own + page)
                alone = gl.full((8,), _HIDDEN, tl.float32, gl.SliceLayout(0, mma))
                weight = gl.full((8,), 0, tl.float32, gl.SliceLayout(0, mma))
                for step in range(4):
                    t = step * 16 + gl.arange(0, 16, layout=gl.SliceLayout(1, mma))[:, None]
                    k = _plain_keys(base + k_codes, head, step, mma)
                    v = _plain_values(base + v_codes, head, step, mma)
                    s = mma_v2(k, plain, gl.full((16, 8), 0, tl.float32, mma)) * scale
                    s = _score(s, extra, (query[None, :] * per_head + page) * 64 + t, mine, softcap, CAPPED)
                    s = gl.where((page > first) | (t >= skip), s, _HIDDEN)
                    acc, top, total = _see(s, v, acc, top, total, mma)
                    higher = gl.maximum(alone, gl.max(s, 0))
                    weight = weight * gl.exp2(alone - higher) + gl.sum(gl.exp2(s - higher[None, :]), 0)
                    alone = higher
                if masses is not None:
                    gl.store(masses + query * per_head + page, alone * _LN2 + gl.log(weight), mask=mine)
            _store(out, at, mine, acc, mma)
            gl.store(tops + at, top * _LN2, mask=mine)
            gl.store(totals + at, total, mask=mine)
    elif k_new is not None:
        row = part - count
        end, skip = gl.load(filled + row).to(tl.int32), gl.load(hidden + row).to(tl.int32)
        plain = _half(gl.load(q + row * q_row + (head * GROUP + n) * q_head + d, mask=n < GROUP, other=0))
        keys, values = gl.load(tails + row * 2), gl.load(tails + row * 2 + 1)
        acc = gl.full((128, 8), 0, tl.float32, mma)
        top = gl.full((8,), _HIDDEN, tl.float32, gl.SliceLayout(0, mma))
        total = gl.full((8,), 0, tl.float32, gl.SliceLayout(0, mma))
        for step in range(skip // 16, end // 16 + 1):
            t = step * 16 + gl.arange(0, 16, layout=gl.SliceLayout(1, mma))[:, None]
            k = _tail(keys, k_new + row * k_row + head * k_head, end, head, step)
            v = _tail(values, v_new + row * v_row + head * v_head, end, head, step)
            k = gl.convert_layout(k, gl.DotOperandLayout(0, mma, 2))
            v = gl.convert_layout(gl.permute(v, (1, 0)), gl.DotOperandLayout(0, mma, 2))
            s = mma_v2(k, plain, gl.full((16, 8), 0, tl.float32, mma)) * scale
            s = _score(s, None, t, mine, softcap, CAPPED)
            acc, top, total = _see(gl.where((t >= skip) & (t <= end), s, _HIDDEN), v, acc, top, total, mma)
        _store(out, at, mine, acc, mma)
        gl.store(tops + at, top * _LN2, mask=mine)
        gl.store(totals + at, total, mask=mine)


@jit
def _over_pages(  # type: ignore[no-untyped-def]
    asks, addresses, offsets, extra, masses, head, query, mine, first, stop, skip, per_head, scale, softcap,
    K_BITS: tl.constexpr, V_BITS: tl.constexpr, CAPPED: tl.constexpr, mma: tl.constexpr,
):  # fmt: skip
    """Attend to the pages of codes ``first`` to ``stop``. Returns the weighted sums of values in four tensors, one for
    each quarter of the dims, then the top score (in log2) and the sum of weights. Weights are relative to the top
    score.
    """
    left: tl.constexpr = gl.DotOperandLayout(0, mma, 2)
    right: tl.constexpr = gl.DotOperandLayout(1, mma, 2)
    flat: tl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    k_room = gl.allocate_shared_memory(tl.float16, [4, 128], flat)
    v_room = gl.allocate_shared_memory(tl.float16, [4, 64], flat)
    k_codes, k_scale, k_zero = gl.load(offsets), gl.load(offsets + 1), gl.load(offsets + 2)
    v_codes, v_scale, v_zero = gl.load(offsets + 3), gl.load(offsets + 4), gl.load(offsets + 5)
    k_scale, k_zero, v_scale, v_zero = (
        k_scale + head * 256,
        k_zero + head * 256,
        v_scale + head * 128,
        v_zero + head * 128,
    )
    top = gl.full((8,), _HIDDEN, tl.float32, gl.SliceLayout(0, mma))
    total = gl.full((8,), 0, tl.float32, gl.SliceLayout(0, mma))
    zeros = gl.full((8,), 0, tl.float32, gl.SliceLayout(0, mma))
    acc0 = gl.full((32, 8), 0, tl.float32, mma)
    acc1, acc2, acc3 = acc0, acc0, acc0
    m = gl.arange(0, 64, layout=gl.SliceLayout(1, mma))[:, None]
    j = (m >> 4) * 2 + (m >> 3 & 1)
    token = (m & 7) * 8 + j if K_BITS == 8 else (j >> 2) * 32 + (m & 7) * 4 + (j & 3)
    at = gl.load(addresses + first)
    following = gl.load(addresses + gl.minimum(first + 1, stop - 1))
    _copy_scales(k_room, v_room, at, k_scale, k_zero, v_scale, v_zero, 0)
    async_copy.commit_group()
    words = _key_words(at + k_codes, head, K_BITS)
    for page in range(first, stop):
        stage = (page - first) & 1
        values = _value_words(at + v_codes, head, K_BITS, V_BITS)
        at = following
        following = gl.load(addresses + gl.minimum(page + 2, stop - 1))
        _copy_scales(k_room, v_room, at, k_scale, k_zero, v_scale, v_zero, 1 - stage)
        async_copy.commit_group()
        async_copy.wait_group(1)
        scales = _of_channels(k_room.index(2 * stage), right)
        offset = _of_channels(k_room.index(2 * stage + 1), right)
        rows = gl.convert_layout(gl.permute(offset, (1, 0)), left) + gl.full((16, 128), 0, tl.float16, left)
        z = gl.max(mma_v2(rows, asks, gl.full((16, 8), 0, tl.float32, mma)), 0)  # all rows are the same
        b0, b1, b2, b3 = _quarters(gl.permute(gl.reshape(asks * scales, (2, 2, 32, 8)), (2, 3, 0, 1)))
        x = gl.permute(gl.reshape(words, (4, 2, 2, 2, 2, 2, 2 * K_BITS)), (0, 3, 4, 6, 5, 1, 2))
        x0, x1, x2, x3 = _quarters(x)
        s = _ask(gl.full((64, 8), 0, tl.float32, mma), x0, b0, K_BITS, mma)
        s = _ask(s, x1, b1, K_BITS, mma)
        s = _ask(s, x2, b2, K_BITS, mma)
        s = _ask(s, x3, b3, K_BITS, mma)
        if page + 1 < stop:  # a branch keeps the compiler from moving this load down
            words = _key_words(at + k_codes, head, K_BITS)
        s = s * (scale * _CODE) + z[None, :] * scale
        s = _score(s, extra, (query[None, :] * per_head + page) * 64 + token, mine, softcap, CAPPED)
        s = gl.where((page > first) | (token >= skip), s, _HIDDEN)
        most = gl.max(s, 0)
        p = gl.exp2(s - most[None, :])
        some = gl.sum(p, 0)
        if masses is not None:
            gl.store(masses + query * per_head + page, most * _LN2 + gl.log(some), mask=mine)
        higher = gl.maximum(top, most)
        shrink, weight = gl.exp2(top - higher), gl.exp2(most - higher)
        top = higher
        token_scale = _of_tokens(v_room.index(2 * stage), mma, K_BITS)
        token_zero = _of_tokens(v_room.index(2 * stage + 1), mma, K_BITS)
        widest = gl.max(gl.max(token_scale, 1), 0)
        total = total * shrink + weight * some
        zeros = zeros * shrink + weight * gl.sum(p * token_zero, 0)
        p = gl.convert_layout((p * (token_scale / widest)).to(tl.float16), right)
        one0, other0, one1, other1, one2, other2, one3, other3 = _quarters_of_values(values, K_BITS, V_BITS)
        grow = weight * widest * _CODE
        acc0 = _weigh(acc0, one0, other0, p, shrink, grow, mma)
        acc1 = _weigh(acc1, one1, other1, p, shrink, grow, mma)
        acc2 = _weigh(acc2, one2, other2, p, shrink, grow, mma)
        acc3 = _weigh(acc3, one3, other3, p, shrink, grow, mma)
    async_copy.wait_group(0)
    add = zeros[None, :]
    return acc0 + add, acc1 + add, acc2 + add, acc3 + add, top, total


@jit
def _half(x):  # type: ignore[no-untyped-def]
    return gl.minimum(gl.maximum(x.to(tl.float32), -_MOST), _MOST).to(tl.float16)


@jit
def _score(s, extra, place, mine, softcap, CAPPED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add ``extra`` to the scores s, apply the softcap, and return the scores in log2."""
    if extra is not None:
        s += gl.load(extra + place, mask=mine[None, :] & (place >= 0), other=0)
    if CAPPED:
        s = softcap * (1 - 2 / (gl.exp2(s * (2 * _LOG2E / softcap)) + 1))
    return s * _LOG2E


@jit
def _see(s, v, acc, top, total, mma: tl.constexpr):  # type: ignore[no-untyped-def]
    """Do one step of online softmax with 16 tokens, whose scores are s. Their values v [128, 16] are the left operand
    of the product.
    """
    higher = gl.maximum(top, gl.max(s, 0))
    shrink, p = gl.exp2(top - higher), gl.exp2(s - higher[None, :])
    acc = mma_v2(v, gl.convert_layout(p.to(tl.float16), gl.DotOperandLayout(1, mma, 2)), acc * shrink[None, :])
    return acc, higher, total * shrink + gl.sum(p, 0)


@jit
def _plain_keys(address, head, step, mma: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the keys of 16 tokens of a bf16 page, as the left operand of a product."""
    layout: tl.constexpr = gl.BlockedLayout([1, 8], [16, 2], [1, 1], [1, 0])
    d = gl.arange(0, 128, layout=gl.SliceLayout(1, layout))[:, None]
    t = gl.arange(0, 16, layout=gl.SliceLayout(0, layout))[None, :]
    place = gl.multiple_of(address.to(tl.pointer_type(tl.bfloat16)), 16) + (head * 128 + d) * 64 + step * 16 + t
    return gl.convert_layout(gl.permute(_half(gl.load(place)), (1, 0)), gl.DotOperandLayout(0, mma, 2))


@jit
def _plain_values(address, head, step, mma: tl.constexpr):  # type: ignore[no-untyped-def]
    layout: tl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [1, 1], [1, 0])
    t = gl.arange(0, 16, layout=gl.SliceLayout(1, layout))[:, None]
    d = gl.arange(0, 128, layout=gl.SliceLayout(0, layout))[None, :]
    place = gl.multiple_of(address.to(tl.pointer_type(tl.bfloat16)), 16) + (head * 64 + step * 16 + t) * 128 + d
    return gl.convert_layout(gl.permute(_half(gl.load(place)), (1, 0)), gl.DotOperandLayout(0, mma, 2))


@jit
def _tail(address, new, end, head, step):  # type: ignore[no-untyped-def]
    """Returns the keys or values of 16 tokens of one head in an open page [64, 128], with ``new`` as token ``end``.
    Writes ``new`` to the page too.
    """
    layout: tl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [1, 1], [1, 0])
    t = step * 16 + gl.arange(0, 16, layout=gl.SliceLayout(1, layout))[:, None]
    d = gl.arange(0, 128, layout=gl.SliceLayout(0, layout))[None, :]
    place = gl.multiple_of(address.to(tl.pointer_type(tl.bfloat16)), 16) + (head * 64 + t) * 128 + d
    token = gl.load(new + d + t * 0, mask=(t == end) & (d >= 0), other=0).to(tl.bfloat16)
    x = gl.load(place, mask=(t < end) & (d >= 0), other=0)
    gl.store(place, token, mask=(t == end) & (d >= 0))
    return _half(gl.where(t == end, token, x))


@jit
def _store(out, at, mine, acc, mma: tl.constexpr):  # type: ignore[no-untyped-def]
    d = gl.arange(0, 128, layout=gl.SliceLayout(1, mma))[:, None]
    gl.store(out + at[None, :] * 128 + d, acc, mask=mine[None, :] & (d >= 0))


@jit
def _store_quarter(out, at, mine, acc, QUARTER: tl.constexpr, V_BITS: tl.constexpr, mma: tl.constexpr):  # type: ignore[no-untyped-def] # fmt: skip
    e = gl.arange(0, 32, layout=gl.SliceLayout(1, mma))[:, None]
    low = (e >> 4) * 2 + (e >> 3 & 1)
    wide: tl.constexpr = V_BITS == 8
    d = (e & 7) * 16 + QUARTER * 4 + low if wide else QUARTER // 2 * 64 + (e & 7) * 8 + QUARTER % 2 * 4 + low
    gl.store(out + at[None, :] * 128 + d, acc, mask=mine[None, :] & (d >= 0))


@jit
def _copy(room, address, N: tl.constexpr):  # type: ignore[no-untyped-def]
    layout: tl.constexpr = gl.BlockedLayout([N // 32], [32], [1], [0])
    place = gl.multiple_of(address.to(tl.pointer_type(tl.float16)), 16) + gl.arange(0, N, layout=layout)
    async_copy.async_copy_global_to_shared(room, place)


@jit
def _copy_scales(k_room, v_room, address, k_scale, k_zero, v_scale, v_zero, stage):  # type: ignore[no-untyped-def]
    """Start copying the scales and zeros of a head's keys and values to shared memory."""
    _copy(k_room.index(2 * stage), address + k_scale, 128)
    _copy(k_room.index(2 * stage + 1), address + k_zero, 128)
    _copy(v_room.index(2 * stage), address + v_scale, 64)
    _copy(v_room.index(2 * stage + 1), address + v_zero, 64)


@jit
def _of_channels(room, right: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the numbers in ``room``, one for each channel, as [128, 1] in the order of channels that the products
    use.
    """
    layout: tl.constexpr = gl.DistributedLinearLayout(
        [[1], [2], [4], [8], [16]], [[32], [64], [0], [0], [0]], [], [], [128]
    )
    x = gl.reshape(gl.permute(gl.reshape(room.load(layout), (4, 8, 2, 2)), (1, 2, 0, 3)), (128,))
    return gl.convert_layout(x, gl.SliceLayout(1, right), assert_trivial=True)[:, None]


@jit
def _of_tokens(room, mma: tl.constexpr, K_BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the numbers in ``room``, one for each token, as [64, 1] float32 in the order of tokens that the products
    use.
    """
    if K_BITS == 8:
        layout: tl.constexpr = gl.DistributedLinearLayout([[1], [2], [4]], [[0], [0], [8], [16], [32]], [], [], [64])
        x = gl.permute(gl.reshape(room.load(layout), (8, 4, 2)), (1, 2, 0))
    else:
        layout: tl.constexpr = gl.DistributedLinearLayout([[1], [2], [32]], [[0], [0], [4], [8], [16]], [], [], [64])  # type: ignore[no-redef]
        x = gl.permute(gl.reshape(room.load(layout), (2, 8, 2, 2)), (0, 2, 3, 1))
    x = gl.convert_layout(gl.reshape(x, (64,)), gl.SliceLayout(1, mma), assert_trivial=True)
    return x.to(tl.float32)[:, None]


@jit
def _key_words(address, head, K_BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the words [128, 2 * K_BITS] of a head's keys, one row for each channel. Of every four neighbouring lanes,
    lane c holds the 32 rows from 32 * c on.
    """
    if K_BITS == 8:
        layout: tl.constexpr = gl.DistributedLinearLayout(
            [[0, 1], [1, 0], [2, 0], [4, 0], [8, 0], [16, 0]],
            [[32, 0], [64, 0], [0, 2], [0, 4], [0, 8]], [], [], [128, 16],
        )  # fmt: skip
    else:
        layout: tl.constexpr = gl.DistributedLinearLayout(  # type: ignore[no-redef]
            [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0]], [[32, 0], [64, 0], [0, 1], [0, 2], [0, 4]], [], [], [128, 8]
        )
    d = gl.arange(0, 128, layout=gl.SliceLayout(1, layout))[:, None]
    w = gl.arange(0, 2 * K_BITS, layout=gl.SliceLayout(0, layout))[None, :]
    place = gl.multiple_of(address.to(tl.pointer_type(tl.uint32)), 16) + (head * 128 + d) * (2 * K_BITS) + w
    return gl.load(place)


@jit
def _value_words(address, head, K_BITS: tl.constexpr, V_BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the words [64, 4 * V_BITS] of a head's values, one row for each token. Each lane holds the same tokens as
    in ``_key_words``.
    """
    if K_BITS == 8:
        if V_BITS == 8:
            layout: tl.constexpr = gl.DistributedLinearLayout(
                [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0], [8, 0]],
                [[16, 0], [32, 0], [0, 4], [0, 8], [0, 16]], [], [], [64, 32],
            )  # fmt: skip
        else:
            layout: tl.constexpr = gl.DistributedLinearLayout(  # type: ignore[no-redef]
                [[0, 1], [1, 0], [2, 0], [4, 0], [8, 0]], [[16, 0], [32, 0], [0, 2], [0, 4], [0, 8]], [], [], [64, 16]
            )
    else:
        layout: tl.constexpr = gl.DistributedLinearLayout(  # type: ignore[no-redef]
            [[0, 1], [1, 0], [2, 0], [4, 0], [32, 0]], [[8, 0], [16, 0], [0, 2], [0, 4], [0, 8]], [], [], [64, 16]
        )
    t = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))[:, None]
    w = gl.arange(0, 4 * V_BITS, layout=gl.SliceLayout(0, layout))[None, :]
    place = gl.multiple_of(address.to(tl.pointer_type(tl.uint32)), 16) + (head * 64 + t) * (4 * V_BITS) + w
    return gl.load(place)


@jit
def _quarters(x):  # type: ignore[no-untyped-def]
    """Split a tensor along its last two axes, which have the size 2, into four tensors."""
    even, odd = gl.split(x)
    x0, x2 = gl.split(even)
    x1, x3 = gl.split(odd)
    return x0, x1, x2, x3


@jit
def _quarters_of_values(values, K_BITS: tl.constexpr, V_BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Split the words of values by quarters of the dims. Returns for each quarter two tensors of words [4, 8, 8]: of
    the even and of the odd tokens.
    """
    if K_BITS == 8:
        x = gl.permute(gl.reshape(values, (4, 2, 8, 4 * V_BITS)), (0, 2, 3, 1))
    else:
        x = gl.permute(gl.reshape(values, (2, 4, 2, 4, 4 * V_BITS)), (1, 0, 3, 4, 2))
    one, other = gl.split(gl.reshape(x, (4, 8, 4 * V_BITS, 2)))
    if V_BITS == 8:
        one0, one1, one2, one3 = _quarters(gl.reshape(one, (4, 8, 8, 2, 2)))
        other0, other1, other2, other3 = _quarters(gl.reshape(other, (4, 8, 8, 2, 2)))
    else:
        one0, one1 = gl.split(gl.reshape(one, (4, 8, 8, 2)))
        other0, other1 = gl.split(gl.reshape(other, (4, 8, 8, 2)))
        one2, one3, other2, other3 = one0 >> 4, one1 >> 4, other0 >> 4, other1 >> 4
        one0, one1, one2, one3 = _low(one0), _low(one1), _low(one2), _low(one3)
        other0, other1, other2, other3 = _low(other0), _low(other1), _low(other2), _low(other3)
    return one0, other0, one1, other1, one2, other2, one3, other3


@jit
def _low(word):  # type: ignore[no-untyped-def]
    return word & 0x0F0F0F0F


@jit
def _ask(s, words, asks, K_BITS: tl.constexpr, mma: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the products of keys and queries in one quarter of the channels to the scores s. The keys are ``words`` [4,
    2, 2, 2 * K_BITS, 2], the queries ``asks`` [32, 8].
    """
    one, other = gl.split(words)
    if K_BITS == 8:
        x = gl.reshape(_pairs(one, other), (4, 2, 2, 8, 2, 2, 2, 2))
        x = gl.permute(x, (4, 5, 6, 3, 1, 2, 0, 7))
    else:
        x = gl.join(_pairs(_low(one), _low(other)), _pairs(_low(one >> 4), _low(other >> 4)))
        x = gl.permute(x, (7, 4, 5, 3, 1, 2, 0, 6))
    x = gl.convert_layout(gl.reshape(x, (64, 32)), gl.DotOperandLayout(0, mma, 2), assert_trivial=True)
    return mma_v2(x, gl.convert_layout(asks, gl.DotOperandLayout(1, mma, 2), assert_trivial=True), s)


@jit
def _weigh(acc, one, other, p, shrink, grow, mma: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the values of one quarter of the dims, weighted by p, to the sums ``acc``. ``one`` and ``other`` [4, 8, 8]
    are the values' words for even and odd tokens. ``shrink`` rescales the old sums, ``grow`` the new products.
    """
    x = gl.reshape(_pairs(one, other), (4, 4, 2, 8, 2, 2, 2))
    x = gl.reshape(gl.permute(x, (4, 5, 3, 1, 2, 0, 6)), (32, 64))
    x = gl.convert_layout(x, gl.DotOperandLayout(0, mma, 2), assert_trivial=True)
    return acc * shrink[None, :] + mma_v2(x, p, gl.full((32, 8), 0, tl.float32, mma)) * grow[None, :]


@jit
def _pairs(one, other):  # type: ignore[no-untyped-def]
    """Returns the bytes of two tensors of words as float16 [..., 2, 2, 2]. The last axis has a byte of ``one`` and the
    same byte of ``other``.
    """
    if _INTERPRETED:
        a0, a1, a2, a3 = _byte(one), _byte(one >> 8), _byte(one >> 16), _byte(one >> 24)
        b0, b1, b2, b3 = _byte(other), _byte(other >> 8), _byte(other >> 16), _byte(other >> 24)
    else:
        a0, b0, a1, b1, a2, b2, a3, b3 = gl.inline_asm_elementwise(
            _PAIRS, "=h,=h,=h,=h,=h,=h,=h,=h,r,r", [one, other],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16, tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True, pack=1,
        )  # fmt: skip
    return gl.join(gl.join(gl.join(a0, a2), gl.join(a1, a3)), gl.join(gl.join(b0, b2), gl.join(b1, b3)))


@jit
def _byte(word):  # type: ignore[no-untyped-def]
    return (word & 255).to(tl.uint16).to(tl.float16, bitcast=True)
