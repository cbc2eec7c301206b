"""The sides of bench/peers.py: how each library makes a case ready.

`PREPARE[side](case, arrays)` gives None where the library has no form of the case, else two functions: one that computes the result
in memory of the library, which is timed, and one that gives what it computed as an array of numpy.  The arrays of bf16 come as f32.
`NEEDS[side]` are statements that an interpreter which has the library executes without an exception.
"""
import ctypes
import ctypes.util
import importlib.metadata
import os

CPUS = len(os.sched_getaffinity(0))
NEEDS = {
    "weft": "import jax",
    "xla": "import jax",
    "numpy": "import numpy",
    "torch": "import torch",
    "compiled": "import torch",
    "openvino": "import openvino",
    "onnxruntime": "import onnx, onnxruntime, onnxscript, torch",
    "iree": "import jax, iree.compiler, iree.runtime",
    "numba": "import numba",
    "mkl": "import peers_sides; peers_sides.Mkl()",
    "fftw": "import pyfftw",
    "onednn": "import peers_sides; peers_sides.Onednn()",
}


def is_narrow(case):
    return "bf16" in case.dtypes()


def bits_of_bf16(a):
    """The nearest bf16 of numbers that are f32, as u16."""
    import numpy
    bits = numpy.ascontiguousarray(a).view(numpy.uint32)
    return (bits + 0x7fff + (bits >> 16 & 1) >> 16).astype(numpy.uint16)


def pointer(a):
    return ctypes.c_void_p(a.ctypes.data)


# ---- JAX: Weft, XLA, IREE ----------------------------------------------------------------------------------------------

def prepare_jax(case, arrays):
    import jax
    import jax.numpy as jnp
    x = [jax.device_put(jnp.asarray(a, jnp.bfloat16 if d == "bf16" else a.dtype)) for a, d in zip(arrays, case.dtypes())]
    f = jax.jit(lambda *args: case.forms["jax"](jnp, *args))
    return lambda: f(*x).block_until_ready(), lambda y: jnp.asarray(y, jnp.float32)


def prepare_iree(case, arrays):
    """IREE compiles the StableHLO that JAX makes, for this processor, and runs it on as many threads as the others."""
    import iree.compiler
    import iree.runtime
    import jax
    import jax.numpy as jnp
    import numpy
    kinds = [jnp.bfloat16 if d == "bf16" else a.dtype for a, d in zip(arrays, case.dtypes())]
    shapes = [jax.ShapeDtypeStruct(a.shape, k) for a, k in zip(arrays, kinds)]
    text = jax.export.export(jax.jit(lambda *args: case.forms["jax"](jnp, *args)))(*shapes).mlir_module()
    binary = iree.compiler.compile_str(text, input_type="stablehlo", target_backends=["llvm-cpu"],
                                       extra_args=[f"--iree-llvmcpu-target-cpu={os.environ.get('WEFT_PEERS_CPU', 'host')}", "--iree-opt-level=O3"])
    iree.runtime.flags.parse_flags(f"--task_topology_group_count={CPUS}")
    config = iree.runtime.Config("local-task")
    module = iree.runtime.VmModule.copy_buffer(config.vm_instance, binary)
    f = iree.runtime.SystemContext(vm_modules=[module], config=config).modules[module.name].main
    x = [iree.runtime.asdevicearray(config.device, numpy.asarray(jnp.asarray(a, k))) for a, k in zip(arrays, kinds)]
    return lambda: f(*x), lambda y: numpy.asarray(y).astype("float32")


# ---- torch, and what reads its programs --------------------------------------------------------------------------------

def torch_arrays(case, arrays):
    import torch
    return [torch.from_numpy(a).to(torch.bfloat16) if d == "bf16" else torch.from_numpy(a) for a, d in zip(arrays, case.dtypes())]


def torch_module(case, weights):
    """A module of the case's form whose parameters are the weights."""
    import torch

    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.nn.Parameter(w, requires_grad=False) for w in weights])

        def forward(self, *data):
            return case.forms["torch"](torch, *data, *self.weights)

    return Program().eval()


def prepare_torch(case, arrays, compiled=False):
    import torch
    torch.set_num_threads(CPUS)
    torch.set_grad_enabled(False)
    if "torch" not in case.forms or (compiled and case.eager):
        return None
    x = torch_arrays(case, arrays)
    data = x[:case.variable]
    f = torch_module(case, x[case.variable:])
    if compiled:
        import torch._inductor.config
        torch._inductor.config.freezing = case.variable < len(x)  # weights are arranged ahead of time
        torch._dynamo.reset()
        f = torch.compile(f, dynamic=False)
    return lambda: f(*data), lambda y: y.to(torch.float32).numpy()


def prepare_openvino(case, arrays):
    import openvino
    import openvino.opset13 as ops
    narrow = is_narrow(case)
    if "openvino" in case.forms:
        kinds = [{"bf16": openvino.Type.bf16, "s8": openvino.Type.i8, "f32": openvino.Type.f32}[d] for d in case.dtypes()]
        parameters = [ops.parameter(list(a.shape), k) for a, k in zip(arrays, kinds)]
        model = openvino.Model([case.forms["openvino"](ops, *parameters)], parameters)
    elif "torch" in case.forms and not case.eager and (not narrow or case.variable < len(arrays)):
        # a model in bf16 is one of f32 that is to be computed in bf16: so OpenVINO's users have it
        import torch
        torch.set_grad_enabled(False)
        x = [torch.from_numpy(a) for a in arrays]
        model = openvino.convert_model(torch_module(case, x[case.variable:]), example_input=tuple(x[:case.variable]),
                                       input=[list(a.shape) for a in arrays[:case.variable]])
        kinds = [openvino.Type.f32] * case.variable
    else:
        return None
    settings = {"INFERENCE_NUM_THREADS": CPUS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    for i, (a, kind) in enumerate(zip(arrays, kinds)):
        tensor = openvino.Tensor(kind, list(a.shape))
        if kind == openvino.Type.bf16:
            tensor.data.view("uint16")[...] = bits_of_bf16(a)
        else:
            tensor.data[...] = a
        request.set_input_tensor(i, tensor)

    def read(_):
        y = request.get_output_tensor(0)
        if y.element_type != openvino.Type.bf16:
            return y.data
        return (y.data.view("uint16").astype("uint32") << 16).view("float32")
    return request.infer, read


def prepare_onnxruntime(case, arrays):
    """ONNX Runtime's provider for CPUs has no kernels of bf16."""
    import onnx
    import onnxruntime
    if "onnx" in case.forms:
        program = case.forms["onnx"](onnx, *arrays)
    elif "torch" in case.forms and not case.eager and not is_narrow(case):
        import torch
        torch.set_grad_enabled(False)
        x = torch_arrays(case, arrays)
        program = torch.onnx.export(torch_module(case, x[case.variable:]), tuple(x[:case.variable]), dynamo=True, verbose=False).model_proto
    else:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = CPUS
    session = onnxruntime.InferenceSession(program.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for i, a in zip(session.get_inputs(), arrays):
        binding.bind_ortvalue_input(i.name, onnxruntime.OrtValue.ortvalue_from_numpy(a))
    for o in session.get_outputs():
        binding.bind_output(o.name)
    return lambda: session.run_with_iobinding(binding), lambda _: binding.copy_outputs_to_cpu()[0]


# ---- numpy and numba ---------------------------------------------------------------------------------------------------

def prepare_numpy(case, arrays):
    import numpy
    f = case.forms.get("numpy")
    return (lambda: f(numpy, *arrays), numpy.asarray) if f and not is_narrow(case) else None


def prepare_numba(case, arrays):
    """A loop over the arrays in all threads; sums and products may be fused and arranged anew, as the other libraries do."""
    import numba
    import numpy
    if "numba" not in case.forms or is_narrow(case):
        return None
    numba.set_num_threads(CPUS)
    number = {"f32": numba.float32, "f64": numba.float64}[case.inputs[0][0]]
    f = numba.vectorize([number(*[number] * len(arrays))], target="parallel", fastmath=True)(case.forms["numba"])
    out = numpy.empty_like(arrays[0])
    return lambda: f(*arrays, out=out), numpy.asarray


# ---- libraries in C ----------------------------------------------------------------------------------------------------

class Mkl:
    """MKL's products, mathematics (least accuracy that is still above single bits: VML_LA) and Fourier transforms, as the wheel `mkl` has them."""

    ROW_MAJOR, PLAIN, TRANSPOSED, FIXED_OFFSET, LOW_ACCURACY = 101, 111, 112, 173, 1

    def __init__(self):
        found = [f.locate() for f in importlib.metadata.files("mkl") if f.name.startswith("libmkl_rt.so")]
        self.library = ctypes.CDLL(str(found[0].resolve()))
        self.library.MKL_Set_Num_Threads(CPUS)
        self.results = {}

    def result(self, shape, dtype):
        """The array that results of this kind are written to."""
        import numpy
        key = (tuple(shape), dtype)
        if key not in self.results:
            self.results[key] = numpy.empty(shape, dtype)
        return self.results[key]

    def matmul(self, a, b, transposed):
        turn = self.TRANSPOSED if transposed else self.PLAIN
        m, k = a.shape[-2:]
        n = b.shape[-2 if transposed else -1]
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        if a.dtype == "uint16":  # bf16
            if a.ndim > 2:
                raise NotImplementedError("batches of bf16")
            c = self.result((m, n), "float32")
            self.library.cblas_gemm_bf16bf16f32(self.ROW_MAJOR, self.PLAIN, turn, m, n, k, one, pointer(a), k, pointer(b), b.shape[-1], zero,
                                                pointer(c), n)
        elif a.dtype == "uint8":  # s8 + 128: the left operand in rows is without signs
            if a.ndim > 2:
                raise NotImplementedError("batches of s8")
            c = self.result((m, n), "int32")
            offset = ctypes.c_int32(0)
            self.library.cblas_gemm_s8u8s32(self.ROW_MAJOR, self.PLAIN, turn, self.FIXED_OFFSET, m, n, k, one, pointer(a), k, ctypes.c_int8(-128),
                                            pointer(b), b.shape[-1], ctypes.c_int8(0), zero, pointer(c), n, ctypes.byref(offset))
        elif a.ndim > 2:
            c = self.result((*a.shape[:-2], m, n), "float32")
            self.library.cblas_sgemm_batch_strided(self.ROW_MAJOR, self.PLAIN, turn, m, n, k, one, pointer(a), k, m * k, pointer(b), b.shape[-1],
                                                   k * n, zero, pointer(c), n, m * n, a.shape[0])
        else:
            c = self.result((m, n), "float32")
            self.library.cblas_sgemm(self.ROW_MAJOR, self.PLAIN, turn, m, n, k, one, pointer(a), k, pointer(b), b.shape[-1], zero, pointer(c), n)
        return c

    def function(self, name, x):
        y = self.result(x.shape, "float32")
        mode = ctypes.c_int64(self.LOW_ACCURACY)
        getattr(self.library, "vms" + {"log1p": "Log1p"}.get(name, name.capitalize()))(x.size, pointer(x), pointer(y), mode)
        return y

    def power_of_magnitude(self, x, y):
        magnitude = self.result(x.shape, "float32")
        self.library.vsAbs(x.size, pointer(x), pointer(magnitude))
        self.library.vmsPow(x.size, pointer(magnitude), pointer(y), pointer(magnitude), ctypes.c_int64(self.LOW_ACCURACY))
        return magnitude

    def real_fft(self, x):
        import mkl_fft.interfaces.numpy_fft
        return mkl_fft.interfaces.numpy_fft.rfft(x)

    def complex_fft(self, x, y):
        import mkl_fft.interfaces.numpy_fft
        import numpy
        return mkl_fft.interfaces.numpy_fft.fft(x + numpy.complex64(1j) * y)


def prepare_mkl(case, arrays):
    import numpy
    f = case.forms.get("mkl")
    if not f or (is_narrow(case) and case.group != "products"):
        return None
    x = [bits_of_bf16(a) if d == "bf16" else a for a, d in zip(arrays, case.dtypes())]
    if case.dtypes()[0] == "s8":
        x[0] = (x[0].astype("int16") + 128).astype("uint8")
    mkl = Mkl()
    return lambda: f(mkl, *x), numpy.asarray


class Onednn:
    """The products that oneDNN's C API offers as plain functions (Debian's libdnnl2); its convolutions are those of torch and OpenVINO."""

    def __init__(self):
        os.environ.setdefault("OMP_NUM_THREADS", str(CPUS))
        self.library = ctypes.CDLL(ctypes.util.find_library("dnnl") or "libdnnl.so.2")

    def matmul(self, a, b, transposed):
        import numpy
        m, k = a.shape
        n = b.shape[0 if transposed else 1]
        turn = ctypes.c_char(b"T" if transposed else b"N")
        size = ctypes.c_int64
        c = numpy.empty((m, n), "int32" if a.dtype == "int8" else "float32")
        if a.dtype == "int8":
            zero, offset = ctypes.c_int8(0), ctypes.c_int32(0)
            status = self.library.dnnl_gemm_s8s8s32(ctypes.c_char(b"N"), turn, ctypes.c_char(b"F"), size(m), size(n), size(k), ctypes.c_float(1),
                                                    pointer(a), size(k), zero, pointer(b), size(b.shape[1]), zero, ctypes.c_float(0),
                                                    pointer(c), size(n), ctypes.byref(offset))
        else:
            status = self.library.dnnl_sgemm(ctypes.c_char(b"N"), turn, size(m), size(n), size(k), ctypes.c_float(1), pointer(a), size(k),
                                             pointer(b), size(b.shape[1]), ctypes.c_float(0), pointer(c), size(n))
        if status:
            raise RuntimeError(f"oneDNN's status {status}")
        return c


def prepare_onednn(case, arrays):
    import numpy
    f = case.forms.get("onednn")
    if not f or is_narrow(case) or arrays[0].ndim > 2:
        return None
    dnnl = Onednn()
    return lambda: f(dnnl, *arrays), numpy.asarray


class Fftw:
    """FFTW's transforms in all threads, planned by measuring."""

    def __init__(self):
        self.plans = {}

    def plan(self, make, shape, dtype):
        import pyfftw
        if make not in self.plans:
            self.plans[make] = getattr(pyfftw.builders, make)(pyfftw.empty_aligned(shape, dtype), threads=CPUS, planner_effort="FFTW_MEASURE")
        return self.plans[make]

    def real(self, x):
        plan = self.plan("rfft", x.shape, "float32")
        plan.input_array[:] = x
        return plan()

    def complex(self, x, y):
        plan = self.plan("fft", x.shape, "complex64")
        plan.input_array.real, plan.input_array.imag = x, y
        return plan()


def prepare_fftw(case, arrays):
    import numpy
    f = case.forms.get("fftw")
    fftw = Fftw()
    return (lambda: f(fftw, *arrays), numpy.asarray) if f else None


PREPARE = {"weft": prepare_jax, "xla": prepare_jax, "numpy": prepare_numpy, "torch": prepare_torch,
           "compiled": lambda case, arrays: prepare_torch(case, arrays, True), "openvino": prepare_openvino,
           "onnxruntime": prepare_onnxruntime, "iree": prepare_iree, "numba": prepare_numba, "mkl": prepare_mkl, "fftw": prepare_fftw,
           "onednn": prepare_onednn}
