"""The cases of bench/peers.py: a name, inputs, and the same computation in the words of each library.

A form is a function of a library's module (or of the stand-in that its side gives: see peers_sides.py) and of the inputs:

    jax           Weft, XLA and IREE
    torch         torch, torch.compile, ONNX Runtime, and OpenVINO where it has no form of its own
    openvino      gets the opset module and returns a node
    onnx          gets the module onnx and returns a model: for what torch cannot export
    numpy, mkl, onednn, fftw
    numba         a function of numbers, of which numba makes a loop over arrays in all threads

A library without a form sits the case out.
"""
import math

GROUPS = ("products", "convolutions", "models", "kernels")
WIDTH = {"s8": 1, "bf16": 2, "f32": 4, "f64": 8}


class Case:
    """`inputs`: (dtype, shape) each, or (dtype, shape, scale) for numbers of another magnitude than 1.  `work`: ("flop" or "byte",
    count).  `variable`: how many of the inputs are data; the others are weights, which libraries that make them part of the program
    may arrange ahead of time (None: all are data).  `tolerance`: of results, relative to the largest magnitude.  `eager`: the form of
    torch is for torch alone, as it runs step by step."""

    def __init__(self, group, name, inputs, work, tolerance=None, variable=None, eager=False, **forms):
        narrow = any(i[0] == "bf16" for i in inputs)
        self.group, self.name, self.inputs, self.work, self.forms = group, name, inputs, work, forms
        self.variable = len(inputs) if variable is None else variable
        self.eager = eager
        self.tolerance = tolerance or (3e-2 if narrow else 1e-3)

    def dtypes(self):
        return [i[0] for i in self.inputs]

    def array(self, number, rng):
        """The values of input `number`; bf16 as f32."""
        dtype, shape = self.inputs[number][:2]
        if dtype == "s8":
            return rng.integers(-127, 128, shape, "int8")
        values = rng.standard_normal(shape).astype("float64" if dtype == "f64" else "float32")
        if len(self.inputs[number]) > 2:
            values *= values.dtype.type(self.inputs[number][2])
        return values


def size(shape):
    return math.prod(shape)


# ---- products ----------------------------------------------------------------------------------------------------------

def product(name, dtype, left, right, flop, transposed=False):
    """left x right, or left x right with its last two dimensions exchanged.  Products of s8 are s32."""
    def form(lib, a, b):
        return a @ (b.swapaxes(-1, -2) if transposed else b)

    def of_bytes_jax(jnp, a, b):
        return jnp.matmul(a, b.swapaxes(-1, -2) if transposed else b, preferred_element_type=jnp.int32)

    def of_bytes_onnx(onnx, a, b):
        from onnx import TensorProto, helper
        values = [helper.make_tensor_value_info(n, TensorProto.INT8, s.shape) for n, s in (("a", a), ("b", b))]
        nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0])] if transposed else []
        nodes.append(helper.make_node("MatMulInteger", ["a", "t" if transposed else "b"], ["c"]))
        graph = helper.make_graph(nodes, "product", values, [helper.make_tensor_value_info("c", TensorProto.INT32, None)])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def of_bytes_openvino(ov, a, b):
        # a scale and a conversion are what OpenVINO takes for quantised operands; the product comes as f32
        one, small = (ov.constant(v, dtype="float32") for v in (0.25, 0.125))
        a, b = ov.multiply(ov.convert(a, "f32"), one), ov.multiply(ov.convert(b, "f32"), small)
        return ov.multiply(ov.matmul(a, b, False, transposed), ov.constant(32.0, dtype="float32"))

    forms = {"jax": form, "torch": form, "numpy": form, "openvino": lambda ov, a, b: ov.matmul(a, b, False, transposed),
             "mkl": lambda mkl, a, b: mkl.matmul(a, b, transposed), "onednn": lambda dnnl, a, b: dnnl.matmul(a, b, transposed)}
    if dtype == "s8":
        forms.update(jax=of_bytes_jax, onnx=of_bytes_onnx, openvino=of_bytes_openvino)
        del forms["numpy"], forms["torch"]
        if len(left) == 2:
            forms["torch"] = lambda torch, a, b: torch._int_mm(a, b.t() if transposed else b)
    tolerance = 1e-6 if dtype == "s8" else None
    return Case("products", f"{dtype} {name}", [(dtype, left), (dtype, right)], ("flop", flop), tolerance, **forms)


def product_cases():
    shapes = [(64,) * 3, (128,) * 3, (256,) * 3, (512,) * 3, (1024,) * 3] + [(m, 1024, 4096) for m in (1, 2, 4, 16, 64)] + [(2, 256, 5000)]
    for dtype in ("f32", "bf16", "s8"):
        for m, k, n in shapes:
            yield product(f"{m}x{k} by {k}x{n}", dtype, (m, k), (k, n), 2 * m * k * n)
        for m, k, n in ((2, 256, 5000), (16, 768, 3072)):
            yield product(f"{m}x{k} by ({n}x{k})T", dtype, (m, k), (n, k), 2 * m * k * n, transposed=True)
        for b, n in ((1024, 16), (256, 32), (64, 64)):
            yield product(f"{b} of {n}x{n}", dtype, (b, n, n), (b, n, n), 2 * b * n ** 3)


# ---- convolutions ------------------------------------------------------------------------------------------------------

def jax_convolution(x, k, stride, pad, groups=1):
    from jax import lax
    return lax.conv_general_dilated(x, k, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"),
                                    feature_group_count=groups)


def convolution(name, dtype, image, features, window, stride=1, groups=1):
    """NCHW images and OIHW weights, padded so that stride 1 keeps the image's size."""
    n, c, h, w = image
    pad = window // 2
    out = (h + 2 * pad - window) // stride + 1
    weights = (features, c // groups, window, window)

    def openvino_form(ov, x, k):
        if groups == 1:
            return ov.convolution(x, k, [stride] * 2, [pad] * 2, [pad] * 2, [1, 1])
        split = ov.constant([groups, features // groups, c // groups, window, window], dtype="int64")
        return ov.group_convolution(x, ov.reshape(k, split, False), [stride] * 2, [pad] * 2, [pad] * 2, [1, 1])

    return Case("convolutions", f"{dtype} {name}", [(dtype, image), (dtype, weights)],
                ("flop", 2 * n * features * out * out * window * window * c // groups),
                jax=lambda jnp, x, k: jax_convolution(x, k, stride, pad, groups),
                torch=lambda torch, x, k: torch.nn.functional.conv2d(x, k, stride=stride, padding=pad, groups=groups),
                openvino=openvino_form)


def convolution_cases():
    for dtype in ("f32", "bf16"):
        yield convolution("7x7/2 of 3 channels, 224", dtype, (1, 3, 224, 224), 64, 7, 2)
        for c, at in ((64, 56), (128, 28), (256, 14), (512, 7)):
            yield convolution(f"3x3 {c} to {c}, {at}", dtype, (1, c, at, at), c, 3)
        yield convolution("1x1 256 to 64, 56", dtype, (1, 256, 56, 56), 64, 1)
        yield convolution("1x1 1024 to 256, 14", dtype, (1, 1024, 14, 14), 256, 1)
        yield convolution("depthwise 3x3 of 256, 56", dtype, (1, 256, 56, 56), 256, 3, 1, 256)
        yield convolution("depthwise 5x5 of 672, 14", dtype, (1, 672, 14, 14), 672, 5, 1, 672)


# ---- models ------------------------------------------------------------------------------------------------------------

class JaxLayers:
    """What models use beside the methods that arrays of jax and torch share."""

    def convolution(self, x, k, stride, pad):
        return jax_convolution(x, k, stride, pad)

    def relu(self, x):
        import jax
        return jax.nn.relu(x)

    def gelu(self, x):
        import jax
        return jax.nn.gelu(x, approximate=False)

    def softmax(self, x):
        import jax
        return jax.nn.softmax(x, -1)

    def layer_norm(self, x, scale, shift):
        import jax
        return jax.nn.standardize(x, -1, epsilon=1e-5) * scale + shift

    def max_pool(self, x):
        from jax import lax
        return lax.reduce_window(x, x.dtype.type(-math.inf), lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1)))

    def join(self, parts, axis):
        import jax.numpy
        return jax.numpy.concatenate(parts, axis)


class TorchLayers:
    """The same for torch."""

    def convolution(self, x, k, stride, pad):
        import torch
        return torch.nn.functional.conv2d(x, k, stride=stride, padding=pad)

    def relu(self, x):
        import torch
        return torch.relu(x)

    def gelu(self, x):
        import torch
        return torch.nn.functional.gelu(x)

    def softmax(self, x):
        import torch
        return torch.softmax(x, -1)

    def layer_norm(self, x, scale, shift):
        import torch
        return torch.nn.functional.layer_norm(x, scale.shape, scale, shift, 1e-5)

    def max_pool(self, x):
        import torch
        return torch.nn.functional.max_pool2d(x, 3, 2, 1)

    def join(self, parts, axis):
        import torch
        return torch.cat(parts, axis)


def model(name, dtype, data, weights, flop, run):
    """`run(layers, data..., weights...)`, of (shape) or (shape, scale) each; the weights are part of the program where a library can do that."""
    inputs = [(dtype, *i) for i in data + weights]
    return Case("models", f"{dtype} {name}", inputs, ("flop", flop), 5e-2 if dtype == "bf16" else None, len(data),
                jax=lambda jnp, *x: run(JaxLayers(), *x), torch=lambda torch, *x: run(TorchLayers(), *x))


def bare_layer(layers, x, qkv, out, up, down):
    """A layer of a transformer's encoder without norms: 12 heads of 64 features."""
    n, s, d = x.shape
    q, k, v = ((x @ qkv[i]).reshape(n, s, 12, 64).swapaxes(1, 2) for i in range(3))
    scores = layers.softmax(q @ k.swapaxes(2, 3) * 0.125)
    x = x + (scores @ v).swapaxes(1, 2).reshape(n, s, d) @ out
    return x + layers.gelu(x @ up) @ down


DEPTH = 4  # layers of the transformers below; the published models have 12


def layer_weights(d):
    """Shapes and scales: norm, q, k and v with their shifts, out, norm, up, down."""
    def matrix(k, n):
        return [((k, n), k ** -0.5), ((n,), 0.1)]
    return [((d,),), ((d,), 0.1), *matrix(d, 3 * d), *matrix(d, d), ((d,),), ((d,), 0.1), *matrix(d, 4 * d), *matrix(4 * d, d)]


def transformer_layer(layers, x, weights, before=None):
    """A layer of BERT, ViT or GPT-2, norms first.  `before`: keys and values of earlier tokens."""
    n, s, d = x.shape
    scale1, shift1, qkv, qkv_shift, out, out_shift, scale2, shift2, up, up_shift, down, down_shift = weights
    heads = (layers.layer_norm(x, scale1, shift1) @ qkv + qkv_shift).reshape(n, s, 3, d // 64, 64).swapaxes(1, 3)
    q, k, v = (heads[:, :, i] for i in range(3))
    if before:
        k, v = layers.join([before[0], k], 2), layers.join([before[1], v], 2)
    mixed = layers.softmax(q @ k.swapaxes(2, 3) * 0.125) @ v
    x = x + mixed.swapaxes(1, 2).reshape(n, s, d) @ out + out_shift
    return x + layers.gelu(layers.layer_norm(x, scale2, shift2) @ up + up_shift) @ down + down_shift


def transformer(layers, x, *weights):
    for i in range(DEPTH):
        x = transformer_layer(layers, x, weights[12 * i:12 * i + 12])
    return x


def decoder(layers, x, keys, values, *weights):
    """One more token of GPT-2: its logits."""
    for i in range(DEPTH):
        x = transformer_layer(layers, x, weights[12 * i:12 * i + 12], (keys[i], values[i]))
    return layers.layer_norm(x, *weights[-3:-1]) @ weights[-1]


RESNET50 = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # features, blocks, stride of each stage


def resnet50_weights():
    """Kernels with the scale and shift of the norm behind each, in the order of `resnet50`; the classifier at the end."""
    def kernel(c_in, c_out, window):
        return [((c_out, c_in, window, window), (2 / (c_in * window * window)) ** 0.5), ((c_out, 1, 1),), ((c_out, 1, 1), 0.1)]
    weights, c = kernel(3, 64, 7), 64
    for features, blocks, _ in RESNET50:
        for b in range(blocks):
            weights += kernel(c, features, 1) + kernel(features, features, 3) + kernel(features, 4 * features, 1)
            weights += kernel(c, 4 * features, 1) if b == 0 else []
            c = 4 * features
    # norms of a trained network keep its numbers small; here scales of a half do
    weights = [(w[0], 0.5) if len(w) == 1 else w for w in weights]
    return weights + [((c, 1000), c ** -0.5)]


def resnet50(layers, x, *weights):
    weights = iter(weights)

    def step(x, stride, pad):
        k, scale, shift = next(weights), next(weights), next(weights)
        return layers.convolution(x, k, stride, pad) * scale + shift

    x = layers.max_pool(layers.relu(step(x, 2, 3)))
    for _, blocks, stride in RESNET50:
        for b in range(blocks):
            s = stride if b == 0 else 1
            y = layers.relu(step(x, 1, 0))
            y = step(layers.relu(step(y, s, 1)), 1, 0)
            x = layers.relu(y + (step(x, s, 0) if b == 0 else x))
    return x.mean((2, 3)) @ next(weights)


def model_cases():
    d = 768
    whole = layer_weights(d) * DEPTH
    for dtype in ("f32", "bf16"):
        for n, s in ((1, 128), (8, 1)):
            weights = [((3, d, d),), ((d, d),), ((d, 4 * d),), ((4 * d, d),)]
            yield model(f"encoder layer, {n}x{s} tokens", dtype, [((n, s, d),)], weights, 2 * n * s * d * d * 12 + 4 * n * s * s * d, bare_layer)
        yield model("ResNet-50, 1 image", dtype, [((1, 3, 224, 224),)], resnet50_weights(), 8_178_000_000, resnet50)
        for name, s in ((f"BERT, 128 tokens, {DEPTH} layers", 128), (f"ViT, 197 tokens, {DEPTH} layers", 197)):
            yield model(name, dtype, [((1, s, d),)], whole, DEPTH * (2 * s * d * d * 12 + 4 * s * s * d), transformer)
        cache = ((DEPTH, 1, 12, 255, 64),)
        yield model(f"GPT-2, token 256, {DEPTH} layers", dtype, [((1, 1, d),), cache, cache], whole + [((d,),), ((d,), 0.1), ((d, 50257), d ** -0.5)],
                    DEPTH * (2 * d * d * 12 + 4 * 256 * d) + 2 * d * 50257, decoder)


# ---- kernels -----------------------------------------------------------------------------------------------------------

NUMBERS = {"sin": lambda x: math.sin(x), "cos": lambda x: math.cos(x), "exp": lambda x: math.exp(x), "tanh": lambda x: math.tanh(x),
           "log1p": lambda x: math.log1p(x)}  # numba compiles these


def kernel(name, shape, dtype="f32", passes=2, tolerance=None, inputs=1, **forms):
    return Case("kernels", f"{dtype} {name} {'x'.join(map(str, shape))}", [(dtype, shape)] * inputs,
                ("byte", passes * WIDTH[dtype] * size(shape)), tolerance, **forms)


def jax_attention(jnp, q, k, v, causal):
    import jax
    scores = q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[2:], bool)), scores, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ v


def jax_attention_gradients(jnp, q, k, v, change, causal):
    import jax
    return jnp.concatenate(jax.vjp(lambda q, k, v: jax_attention(jnp, q, k, v, causal), q, k, v)[1](change))


def torch_attention_gradients(torch, q, k, v, change, causal):
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        result = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
        return torch.cat(torch.autograd.grad(result, inputs, change))


def attention_cases():
    """(batch, heads, tokens, features); a causal one counts all products, too. Gradients by queries, keys and values are those of a
    program that has computed nothing before: six products, which torch's `compiled` and what reads torch's programs have no form of."""
    for dtype in ("f32", "bf16"):
        for shape in ((8, 12, 128, 64), (1, 8, 2048, 64)):
            for causal in (False, True):
                yield Case("kernels", f"{dtype} {'causal ' if causal else ''}attention {'x'.join(map(str, shape))}", [(dtype, shape)] * 3,
                           ("flop", 4 * size(shape) * shape[2]), jax=lambda jnp, q, k, v, causal=causal: jax_attention(jnp, q, k, v, causal),
                           torch=lambda torch, q, k, v, causal=causal: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
                           openvino=lambda ov, q, k, v, causal=causal: ov.scaled_dot_product_attention(q, k, v, causal=causal))
        for shape in ((8, 12, 128, 64), (8, 12, 512, 64), (1, 8, 2048, 64)):
            for causal in (False, True):
                yield Case("kernels", f"{dtype} {'causal ' if causal else ''}attention backward {'x'.join(map(str, shape))}", [(dtype, shape)] * 4,
                           ("flop", 12 * size(shape) * shape[2]), eager=True,
                           jax=lambda jnp, q, k, v, g, causal=causal: jax_attention_gradients(jnp, q, k, v, g, causal),
                           torch=lambda torch, q, k, v, g, causal=causal: torch_attention_gradients(torch, q, k, v, g, causal))


def kernel_cases():
    import operator
    for name, shape in (("sort", (1 << 20,)), ("sort rows", (1024, 4096))):
        yield kernel(name, shape, jax=lambda jnp, x: jnp.sort(x), torch=lambda torch, x: torch.sort(x)[0], numpy=lambda np, x: np.sort(x))
    for dtype in ("f32", "bf16"):
        yield kernel("transpose", (4096, 4096), dtype, jax=lambda jnp, x: x.T, torch=lambda torch, x: x.T.contiguous(),
                     numpy=lambda np, x: np.ascontiguousarray(x.T), openvino=lambda ov, x: ov.transpose(x, ov.constant([1, 0], dtype="int64")))
        for axis, word in ((0, "columns"), (1, "rows")):
            yield kernel(f"cumsum of {word}", (1024, 1024), dtype, tolerance=0.05 if dtype == "bf16" else None,
                         jax=lambda jnp, x, axis=axis: jnp.cumsum(x, axis), torch=lambda torch, x, axis=axis: torch.cumsum(x, axis),
                         numpy=lambda np, x, axis=axis: np.cumsum(x, axis))
        for name in ("sin", "cos", "exp", "tanh", "log1p"):
            yield kernel(name, (1024, 1024), dtype, jax=lambda jnp, x, f=name: getattr(jnp, f)(x),
                         torch=lambda torch, x, f=name: getattr(torch, f)(x), numpy=lambda np, x, f=name: getattr(np, f)(x),
                         mkl=lambda mkl, x, f=name: mkl.function(f, x), numba=NUMBERS[name],
                         **({"openvino": lambda ov, x, f=name: getattr(ov, f)(x)} if name != "log1p" else {}))
        yield kernel("pow", (1024, 1024), dtype, 3, inputs=2, jax=lambda jnp, x, y: abs(x) ** y, torch=lambda torch, x, y: abs(x) ** y,
                     numpy=lambda np, x, y: abs(x) ** y, numba=lambda x, y: abs(x) ** y, mkl=lambda mkl, x, y: mkl.power_of_magnitude(x, y),
                     openvino=lambda ov, x, y: ov.power(ov.absolute(x), y))

        def jax_gelu(jnp, x):
            import jax
            return jax.nn.gelu(x, approximate=False)
        yield kernel("gelu", (1024, 1024), dtype, jax=jax_gelu, torch=lambda torch, x: torch.nn.functional.gelu(x),
                     numba=lambda x: x * (0.5 + 0.5 * math.erf(x * 0.7071067811865476)), openvino=lambda ov, x: ov.gelu(x, "erf"))

        def jax_softmax(jnp, x):
            import jax
            return jax.nn.softmax(x, -1)
        yield kernel("softmax", (1024, 1024), dtype, jax=jax_softmax, torch=lambda torch, x: torch.softmax(x, -1),
                     openvino=lambda ov, x: ov.softmax(x, 1))
        yield kernel("sum of columns", (4096, 4096), dtype, 1, jax=lambda jnp, x: x.sum(0), torch=lambda torch, x: x.sum(0),
                     numpy=lambda np, x: x.sum(0))
        yield kernel("add", (4096, 4096), dtype, 3, inputs=2, jax=operator_form(operator.add), torch=operator_form(operator.add),
                     numpy=operator_form(operator.add), numba=lambda x, y: x + y, openvino=lambda ov, x, y: ov.add(x, y))
    yield kernel("cast to bf16", (4096, 4096), passes=1.5, tolerance=1e-2, jax=lambda jnp, x: x.astype(jnp.bfloat16),
                 torch=lambda torch, x: x.to(torch.bfloat16))
    yield kernel("real FFT", (1 << 20,), jax=lambda jnp, x: abs(jnp.fft.rfft(x)), torch=lambda torch, x: abs(torch.fft.rfft(x)),
                 numpy=lambda np, x: abs(np.fft.rfft(x)), fftw=lambda fftw, x: abs(fftw.real(x)), mkl=lambda mkl, x: abs(mkl.real_fft(x)))
    yield kernel("complex FFT", (1 << 20,), passes=4, inputs=2, jax=lambda jnp, x, y: abs(jnp.fft.fft(x + 1j * y)),
                 torch=lambda torch, x, y: abs(torch.fft.fft(torch.complex(x, y))), numpy=lambda np, x, y: abs(np.fft.fft(x + np.complex64(1j) * y)),
                 fftw=lambda fftw, x, y: abs(fftw.complex(x, y)), mkl=lambda mkl, x, y: abs(mkl.complex_fft(x, y)))
    for n in (32, 64):
        def factor(lib, x):
            """The Cholesky factors of x xT + n, in one form for three libraries."""
            return lib.linalg.cholesky(x @ x.swapaxes(1, 2) + x.shape[1] * lib.eye(x.shape[1]))
        yield kernel("Cholesky", (256, n, n), jax=factor, torch=factor, numpy=factor)


def operator_form(f):
    return lambda lib, x, y: f(x, y)


def all_cases():
    return [*product_cases(), *convolution_cases(), *model_cases(), *kernel_cases(), *attention_cases()]
