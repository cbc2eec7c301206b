#!/usr/bin/env python3
"""Small programs that ask for much (TAP): shapes, types and attributes that double with each line, deep and wide nesting,
chains of calls, many computations, users and operands, big constants and regions.  Each text of less than 1 MB is compiled or
refused within 10 s of processor time and 1 GiB of memory, and never ends the process by a signal.

nasty_test.py --write FOLDER writes the programs there instead; nasty_test.py NAME... runs some of them."""
import os
import resource
import subprocess
import sys
import tempfile
import time

MOST_BYTES = 1_000_000
MOST_SECONDS = 10
MOST_MIB = 1024
SANITIZED = bool(os.environ.get("WEFT_SANITIZED"))


def lines(count, line):
    return "\n".join(line(i) for i in range(count))


def hlo(body, before=""):
    return f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}\n"


def mlir(body, before="", result="tensor<f32>", value="%p"):
    return f"{before}\nfunc.func @main(%p: tensor<f32>) -> {result} {{\n{body}\n  return {value} : {result}\n}}\n"


ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"


def hlo_doubling(levels, width=2):
    """Tuples of tuples, whose shapes are left out."""
    return hlo("  t0 = f32[] parameter(0)\n" + lines(levels, lambda i: f"  t{i + 1} = tuple({', '.join([f't{i}'] * width)})") +
               f"\n  ROOT r = tuple(t{levels})")


def hlo_calls(levels, what):
    """Each computation calls the one before twice."""
    text = "f0 { a = f32[4] parameter(0) ROOT r = f32[4] negate(a) }\n"
    for i in range(levels):
        text += f"f{i + 1} {{ a = f32[4] parameter(0) b = f32[4] {what.replace('F', f'f{i}').replace('X', 'a')}" \
                f" ROOT c = f32[4] {what.replace('F', f'f{i}').replace('X', 'b')} }}\n"
    return hlo(f"  a = f32[4] parameter(0)\n  ROOT r = f32[4] call(a), to_apply=f{levels}", text)


def hlo_scopes(levels):
    """Each computation calls the next, under a name of its own: the names of all callers together have the square of the text."""
    text = lines(levels, lambda i: f'c{i} {{ p = f32[] parameter(0) ROOT r = f32[] call(p), to_apply=c{i + 1}, metadata={{op_name="{i}_{"x" * 50}"}} }}')
    return hlo("  a = f32[] parameter(0)\n  ROOT r = f32[] call(a), to_apply=c0",
               f"c{levels} {{ p = f32[] parameter(0) ROOT n = f32[] negate(p) }}\n" + "\n".join(reversed(text.split("\n"))))


def hlo_deep(levels, kind):
    """Loops or branches, each inside the one before."""
    text = "c { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(0) ROOT l = pred[] compare(i, n), direction=LT }\n" \
           "b0 { ROOT s = (s32[], f32[4]) parameter(0) }\n"
    for i in range(levels):
        if kind == "while":
            text += f"c{i} {{ s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3) ROOT l = pred[] compare(i, n), direction=LT }}\n"
            inner = f"while(s), condition=c{i}, body=b{i}"
        else:
            inner = f"conditional(i, s, s), branch_computations={{b{i}, x{i}}}"
            text += f"x{i} {{ ROOT s = (s32[], f32[4]) parameter(0) }}\n"
        text += f"b{i + 1} {{ s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 w = (s32[], f32[4]) {inner}" \
                " j = s32[] get-tuple-element(w), index=0 one = s32[] constant(1) k = s32[] add(j, one)" \
                " v = f32[4] get-tuple-element(w), index=1 u = f32[4] cosine(v) ROOT r = (s32[], f32[4]) tuple(k, u) }\n"
    return hlo(f"  z = s32[] constant(0)\n  a = f32[4] parameter(0)\n  t = (s32[], f32[4]) tuple(z, a)\n"
               f"  ROOT r = (s32[], f32[4]) call(t), to_apply=b{levels}", text)


def hlo_many_loops(count, width):
    """Loops one after the other, each over a wide state."""
    shape = "(s32[], " + ", ".join(["f32[4]"] * width) + ")"
    text = f"c {{ s = {shape} parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3) ROOT l = pred[] compare(i, n), direction=LT }}\n"
    text += f"b {{ s = {shape} parameter(0)\n" + lines(width, lambda i: f" v{i} = f32[4] get-tuple-element(s), index={i + 1} w{i} = f32[4] sine(v{i})") + \
            f"\n i = s32[] get-tuple-element(s), index=0 one = s32[] constant(1) j = s32[] add(i, one) ROOT r = tuple(j, {', '.join(f'w{(i + 1) % width}' for i in range(width))}) }}\n"
    return hlo("  z = s32[] constant(0)\n  a = f32[4] parameter(0)\n  t0 = tuple(z, " + ", ".join(["a"] * width) + ")\n" +
               lines(count, lambda i: f"  t{i + 1} = while(t{i}), condition=c, body=b") + f"\n  ROOT r = f32[4] get-tuple-element(t{count}), index=1", text)


def mlir_types(levels, spelling, width=2):
    return mlir("", "!t0 = tensor<f32>\n" + lines(levels, lambda i: f"!t{i + 1} = {spelling}<{', '.join([f'!t{i}'] * width)}>") +
                f"\nfunc.func private @f(%a: !t{levels}) -> !t{levels} {{\n  return %a : !t{levels}\n}}\n")


def mlir_attributes(levels, form, width=2):
    lists = {"array": lambda i: f"#a{i + 1} = [{', '.join([f'#a{i}'] * width)}]",
             "dict": lambda i: f"#a{i + 1} = {{{', '.join(f'k{k} = #a{i}' for k in range(width))}}}"}
    return mlir(f'  %0 = stablehlo.custom_call @Sharding(%p) {{mhlo.backend_config = #a{levels}, mhlo.frontend_attributes = {{x = #a{levels}}}}} : (tensor<f32>) -> tensor<f32>',
                "#a0 = 1 : i32\n" + lines(levels, lists[form]))


def mlir_nest(levels, op):
    text = ""
    for i in range(levels):
        if op == "case":
            text += f'  %{i} = "stablehlo.case"(%i) ({{\n'
        else:
            text += f'  %{i}:2 = "stablehlo.while"(%p, %i) ({{\n ^bb0(%a{i}: tensor<f32>, %b{i}: tensor<i32>):\n  %c{i} = stablehlo.compare LT, %b{i}, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n' \
                    f'  stablehlo.return %c{i} : tensor<i1>\n }}, {{\n ^bb0(%d{i}: tensor<f32>, %e{i}: tensor<i32>):\n'
    for i in reversed(range(levels)):
        text += f"  stablehlo.return %p : tensor<f32>\n }}) : (tensor<i32>) -> tensor<f32>\n" if op == "case" else \
                f"  stablehlo.return %d{i}, %e{i} : tensor<f32>, tensor<i32>\n }}) : (tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)\n"
    return mlir("  %i = stablehlo.constant dense<0> : tensor<i32>\n" + text)


def mlir_calls(levels):
    text = "func.func private @f0(%a: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.negate %a : tensor<f32>\n  return %0 : tensor<f32>\n}\n"
    for i in range(levels):
        text += f"func.func private @f{i + 1}(%a: tensor<f32>) -> tensor<f32> {{\n  %0 = call @f{i}(%a) : (tensor<f32>) -> tensor<f32>\n" \
                f"  %1 = call @f{i}(%0) : (tensor<f32>) -> tensor<f32>\n  return %1 : tensor<f32>\n}}\n"
    return mlir(f"  %0 = call @f{levels}(%p) : (tensor<f32>) -> tensor<f32>", text, value="%0")


def programs():
    yield "hlo_tuples_double.hlo", lambda: hlo_doubling(31)
    yield "hlo_tuples_double_ten_wide.hlo", lambda: hlo_doubling(31, 10)
    yield "hlo_tuples_deep.hlo", lambda: hlo_doubling(30000, 1)
    yield "hlo_empty_tuples_double.hlo", lambda: hlo_doubling(31).replace("t0 = f32[] parameter(0)", "t0 = tuple()")
    yield "hlo_wide_tuples.hlo", lambda: hlo("  t0 = f32[] parameter(0)\n  t1 = tuple(" + ", ".join(["t0"] * 90000) + ")\n" +
                                             lines(20000, lambda i: f"  t{i + 2} = opt-barrier(t{i + 1})") + "\n  ROOT r = f32[] get-tuple-element(t20001), index=7")
    yield "hlo_wide_tuple_elements.hlo", lambda: hlo("  t0 = f32[] parameter(0)\n  u = tuple(t0)\n  t1 = tuple(u, " + ", ".join(["t0"] * 30000) + ")\n" +
                                                     lines(14000, lambda i: f"  g{i} = f32[] get-tuple-element(t1), index={i + 1}") + "\n  ROOT r = tuple(" + ", ".join(f"g{i}" for i in range(14000)) + ")")
    yield "hlo_wide_parameter.hlo", lambda: hlo("  ROOT p = (" + ", ".join(["f32[]"] * 60000) + ") parameter(0)")
    yield "hlo_calls_double.hlo", lambda: hlo_calls(40, "call(X), to_apply=F")
    yield "hlo_calls_deep.hlo", lambda: hlo_calls(5000, "call(X), to_apply=F")
    yield "hlo_calls_with_scopes.hlo", lambda: hlo_scopes(6500)
    yield "hlo_fusions_double.hlo", lambda: hlo_calls(40, "fusion(X), kind=kLoop, calls=F")
    yield "hlo_maps_double.hlo", lambda: hlo_calls(40, "call(X), to_apply=F").replace("f32[4]", "f32[]").replace("call(", "map(").replace("ROOT r = f32[] map(a)", "ROOT r = f32[] call(a)")
    yield "hlo_loops_deep.hlo", lambda: hlo_deep(1200, "while")
    yield "hlo_loops_nested.hlo", lambda: hlo_deep(100, "while")
    yield "hlo_branches_deep.hlo", lambda: hlo_deep(100, "conditional")
    yield "hlo_many_loops.hlo", lambda: hlo_many_loops(2000, 100)
    yield "hlo_long_chain.hlo", lambda: hlo("  v0 = f32[8] parameter(0)\n" + lines(30000, lambda i: f"  v{i + 1} = f32[8] cosine(v{i})") + "\n  ROOT r = f32[8] negate(v30000)")
    yield "hlo_long_chain_of_two.hlo", lambda: hlo("  v0 = f32[8] parameter(0)\n" + lines(20000, lambda i: f"  v{i + 1} = f32[8] add(v{i}, v{max(i - 1, 0)})") + "\n  ROOT r = f32[8] negate(v20000)")
    yield "hlo_many_users.hlo", lambda: hlo("  v = f32[8] parameter(0)\n" + lines(12000, lambda i: f"  w{i} = f32[8] sine(v)\n  x{i} = f32[4] slice(w{i}), slice={{[{i % 4}:{i % 4 + 4}]}}") +
                                            "\n  ROOT r = tuple(" + ", ".join(f"x{i}" for i in range(12000)) + ")")
    yield "hlo_many_reduces.hlo", lambda: hlo("  v = f32[64,9] parameter(0)\n  z = f32[] constant(0)\n" + lines(8000, lambda i: f"  c{i} = f32[] constant({i})\n  b{i} = f32[64,9] broadcast(c{i}), dimensions={{}}\n  m{i} = f32[64,9] multiply(v, b{i})\n  w{i} = f32[9] reduce(m{i}, z), dimensions={{0}}, to_apply=add")[:800000].rsplit("\n", 1)[0] +
                                             "\n  ROOT r = f32[] add(z, z)", ADD)
    yield "hlo_many_dots.hlo", lambda: hlo("  v0 = f32[16,16] parameter(0)\n" + lines(8000, lambda i: f"  v{i + 1} = f32[16,16] dot(v{i}, v0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}") + "\n  ROOT r = f32[16,16] negate(v8000)")
    yield "hlo_many_computations.hlo", lambda: hlo("  v0 = f32[] parameter(0)\n" + lines(5000, lambda i: f"  v{i + 1} = f32[] call(v{i}), to_apply=f{i}") + "\n  ROOT r = f32[] negate(v5000)",
                                                   lines(5000, lambda i: f"f{i} {{ a = f32[] parameter(0) c = f32[] constant({i}) ROOT r = f32[] add(a, c) }}"))
    yield "hlo_big_sort_region.hlo", lambda: hlo("  v = f32[100] parameter(0)\n  ROOT r = f32[100] sort(v), dimensions={0}, to_apply=less",
                                                 "less { v0 = f32[] parameter(0) w = f32[] parameter(1)\n" + lines(20000, lambda i: f" v{i + 1} = f32[] add(v{i}, w)") + "\n ROOT r = pred[] compare(v20000, w), direction=LT }")
    yield "hlo_big_reducer.hlo", lambda: hlo("  v = f32[100,100] parameter(0)\n  z = f32[] constant(0)\n  ROOT r = f32[100] reduce(v, z), dimensions={0}, to_apply=big",
                                             "big { v0 = f32[] parameter(0) w = f32[] parameter(1)\n" + lines(20000, lambda i: f" v{i + 1} = f32[] multiply(v{i}, w)") + "\n ROOT r = f32[] negate(v20000) }")
    yield "hlo_big_splats.hlo", lambda: hlo("  z = f32[] constant(1)\n" + lines(200, lambda i: f"  b{i} = f32[100000,{i + 1000}] broadcast(z), dimensions={{}}\n  s{i} = f32[100000,{i + 1000}] add(b{i}, b{i})\n  g{i} = f32[1,1] slice(s{i}), slice={{[0:1],[0:1]}}") +
                                            "\n  ROOT r = tuple(" + ", ".join(f"g{i}" for i in range(200)) + ")")
    yield "hlo_iota_folds.hlo", lambda: hlo(lines(2000, lambda i: f"  i{i} = s32[4096] iota(), iota_dimension=0\n  c{i} = s32[] constant({i})\n  b{i} = s32[4096] broadcast(c{i}), dimensions={{}}\n  s{i} = s32[4096] multiply(i{i}, b{i})") +
                                            "\n  ROOT r = tuple(" + ", ".join(f"s{i}" for i in range(2000)) + ")")
    yield "hlo_concatenate_chain.hlo", lambda: hlo("  v0 = f32[2] parameter(0)\n" + lines(3000, lambda i: f"  v{i + 1} = f32[{i * 2 + 4}] concatenate(v{i}, v0), dimensions={{0}}") + "\n  ROOT r = f32[6002] negate(v3000)")
    yield "hlo_pads_and_slices.hlo", lambda: hlo("  v0 = f32[64] parameter(0)\n  z = f32[] constant(0)\n" + lines(4000, lambda i: f"  p{i} = f32[66] pad(v{i}, z), padding=1_1\n  v{i + 1} = f32[64] slice(p{i}), slice={{[{i % 3}:{i % 3 + 64}]}}") + "\n  ROOT r = f32[64] negate(v4000)")
    yield "hlo_transposes.hlo", lambda: hlo("  v0 = f32[8,8,8] parameter(0)\n" + lines(6000, lambda i: f"  t{i} = f32[8,8,8] transpose(v{i}), dimensions={{1,2,0}}\n  v{i + 1} = f32[8,8,8] add(t{i}, v{i})") + "\n  ROOT r = f32[8,8,8] negate(v6000)")
    yield "hlo_gathers_of_gathers.hlo", lambda: hlo("  v0 = s32[64] parameter(0)\n" + lines(3000, lambda i: f"  s{i} = s32[1] slice(v{i}), slice={{[0:1]}}\n  r{i} = s32[] reshape(s{i})\n  v{i + 1} = s32[64] dynamic-update-slice(v{i}, s{i}, r{i})") + "\n  ROOT r = s32[64] negate(v3000)")
    yield "hlo_windows.hlo", lambda: hlo("  v0 = f32[64] parameter(0)\n  z = f32[] constant(0)\n" + lines(1500, lambda i: f"  v{i + 1} = f32[64] reduce-window(v{i}, z), window={{size=3 pad=1_1}}, to_apply=add") + "\n  ROOT r = f32[64] negate(v1500)", ADD)
    yield "hlo_stencils.hlo", lambda: hlo("  v0 = f32[64,64] parameter(0)\n  z = f32[] constant(0)\n" + lines(400, lambda i: f"  v{i + 1} = f32[64,64] reduce-window(v{i}, z), window={{size=3x3 pad=1_1x1_1}}, to_apply=add") + "\n  ROOT r = f32[64,64] negate(v400)", ADD)
    yield "hlo_many_branches.hlo", lambda: hlo("  i = s32[] parameter(0)\n  a = f32[4] parameter(1)\n  ROOT r = f32[4] conditional(i, " + ", ".join(["a"] * 5000) + "), branch_computations={" + ", ".join(f"f{i}" for i in range(5000)) + "}",
                                              lines(5000, lambda i: f"f{i} {{ a = f32[4] parameter(0) ROOT r = f32[4] negate(a) }}"))
    yield "hlo_control_edges.hlo", lambda: hlo("  v = f32[8] parameter(0)\n  w0 = f32[8] sine(v)\n" + lines(8000, lambda i: f"  w{i + 1} = f32[8] sine(v), control-predecessors={{w{i}, w{i // 2}}}") + "\n  ROOT r = f32[8] add(w8000, w1)")
    yield "hlo_many_custom_aliases.hlo", lambda: hlo("  v = f32[8] parameter(0)\n  t = tuple(" + ", ".join(["v"] * 9000) + ")\n  ROOT c = (" + ", ".join(["f32[8]"] * 9000) + ") custom-call(t), custom_call_target=\"x\", output_to_operand_aliasing={" + ", ".join(f"{{{i}}}: (0, {{{i}}})" for i in range(9000)) + "}")
    yield "hlo_many_collectives.hlo", lambda: hlo("  v0 = f32[8] parameter(0)\n" + lines(5000, lambda i: f"  v{i + 1} = f32[8] all-reduce(v{i}), replica_groups={{}}, to_apply=add") + "\n  ROOT r = f32[8] negate(v5000)", ADD)
    yield "hlo_names.hlo", lambda: hlo(lines(30000, lambda i: "  p = f32[] constant(1)") + "\n  ROOT r = f32[] negate(p)")
    yield "hlo_comments.hlo", lambda: hlo("  ROOT r = f32[] constant(1) " + "/*" * 400000)
    yield "hlo_nested_operands.hlo", lambda: hlo("  ROOT r = f32[] " + "negate(f32[] " * 50000 + "constant(1)" + ")" * 50000)
    yield "hlo_shape_parentheses.hlo", lambda: hlo("  ROOT r = " + "(" * 900000)
    yield "hlo_layout_shapes.hlo", lambda: hlo("  ROOT r = " + "f32[1]{0:P(" * 80000)
    yield "hlo_attribute_braces.hlo", lambda: hlo("  a = f32[] parameter(0)\n  ROOT r = f32[] negate(a), frontend_attributes=" + "{" * 900000)
    yield "hlo_sharding_nest.hlo", lambda: hlo("  a = f32[] parameter(0)\n  ROOT r = f32[] negate(a), sharding=" + "{" * 900000)
    yield "mlir_tuples_double.mlir", lambda: mlir_types(31, "tuple")
    yield "mlir_tuples_deep.mlir", lambda: mlir_types(30000, "tuple", 1)
    yield "mlir_futures_double.mlir", lambda: mlir_types(40, "!stablehlo.future")
    yield "mlir_empty_tuples_double.mlir", lambda: mlir_types(40, "tuple").replace("!t0 = tensor<f32>", "!t0 = tuple<>")
    yield "mlir_functions_double.mlir", lambda: mlir("", "!t0 = tensor<f32>\n" + lines(40, lambda i: f"!t{i + 1} = (!t{i}, !t{i}) -> !t{i}") + "\n#x = !t40\n")
    for form in ("array", "dict"):
        yield f"mlir_{form}_attributes_double.mlir", lambda form=form: mlir_attributes(40, form)
        yield f"mlir_{form}_attributes_deep.mlir", lambda form=form: mlir_attributes(25000, form, 1)
    yield "mlir_locations_double.mlir", lambda: "#l0 = loc(\"a\":1:1)\n" + lines(60, lambda i: f"#l{i + 1} = loc(fused[#l{i}, #l{i}])") + "\nfunc.func @main(%p: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.negate %p : tensor<f32> loc(#l60)\n  return %0 : tensor<f32>\n}\n"
    yield "mlir_call_sites_deep.mlir", lambda: "#l0 = loc(\"a\":1:1)\n" + lines(20000, lambda i: f"#l{i + 1} = loc(callsite(#l{i} at #l0))") + "\nfunc.func @main(%p: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.negate %p : tensor<f32> loc(#l20000)\n  return %0 : tensor<f32>\n}\n"
    yield "mlir_cases_deep.mlir", lambda: mlir_nest(60, "case")
    yield "mlir_whiles_deep.mlir", lambda: mlir_nest(60, "while")
    yield "mlir_cases_too_deep.mlir", lambda: mlir_nest(8000, "case")
    yield "mlir_calls_double.mlir", lambda: mlir_calls(40)
    yield "mlir_calls_deep.mlir", lambda: mlir_calls(4000)
    yield "mlir_huge_splat.mlir", lambda: mlir(lines(500, lambda i: f"  %{i} = stablehlo.constant dense<1.0> : tensor<{i + 1}x1000000x1000xf32>"))
    yield "mlir_dense_nest.mlir", lambda: mlir("  %0 = stablehlo.constant dense<" + "[" * 400000 + "1" + "]" * 400000 + "> : tensor<f32>")
    yield "mlir_dense_list.mlir", lambda: mlir("  %0 = stablehlo.constant dense<[" + ", ".join(["1.5"] * 150000) + "]> : tensor<150000xf32>")
    yield "mlir_long_chain.mlir", lambda: mlir(lines(20000, lambda i: f"  %v{i} = stablehlo.cosine %{'p' if i == 0 else f'v{i - 1}'} : tensor<f32>"), value="%v19999")
    yield "mlir_many_functions.mlir", lambda: mlir("", lines(8000, lambda i: f"func.func private @f{i}(%a: tensor<f32>) -> tensor<f32> {{\n  return %a : tensor<f32>\n}}"))
    yield "mlir_types_of_brackets.mlir", lambda: mlir("", "!t = " + "tuple<" * 150000)
    yield "mlir_attributes_of_brackets.mlir", lambda: mlir("", "#t = " + "[" * 900000)
    yield "mlir_rank.mlir", lambda: mlir("  %0 = stablehlo.constant dense<1.0> : tensor<" + "1x" * 400000 + "f32>")
    yield "mlir_numbers.mlir", lambda: mlir("  %0 = stablehlo.constant dense<" + "9" * 900000 + "> : tensor<f32>")
    yield "mlir_dynamic_calls.mlir", lambda: mlir_calls(24).replace("tensor<f32>", "tensor<?xf32>").replace("@main(%p: tensor<?xf32>) -> tensor<?xf32>", "@main(%p: tensor<?xf32>) -> tensor<?xf32>")


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (200 if SANITIZED else 20,) * 2)
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))


def run(weft, path):
    """"" if the program was compiled or refused as it should be; and what it took."""
    begin = time.monotonic()
    with open(path + ".log", "wb") as log:
        child = subprocess.Popen([weft, "inspect", path, "--memory"], stdout=subprocess.DEVNULL, stderr=log, preexec_fn=limits,
                                 env=dict(os.environ, WEFT_THREADS="1", WEFT_CACHE_DIR=""))
        _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    with open(path + ".log", encoding="utf-8", errors="replace") as log:
        says = log.read(300).split("\n")[0]
    # a busy machine lengthens the time on the clock, and a virtual one that is busy counts too much processor time
    seconds, mib = min(usage.ru_utime + usage.ru_stime, wall), usage.ru_maxrss >> 10
    took = f"{seconds:.2f} s, {mib} MiB, {says[14:100]}"
    if child.returncode < 0 or child.returncode > 4:
        return f"ended with {child.returncode}", took
    if "INTERNAL" in says:
        return says, took
    if not SANITIZED and (seconds > MOST_SECONDS or mib > MOST_MIB):
        return "too much", took
    return "", took


def main():
    names = sys.argv[1:]
    if names[:1] == ["--write"]:
        for name, make in programs():
            with open(os.path.join(names[1], name), "w", encoding="utf-8") as f:
                f.write(make())
        return 0
    slow = ("hlo_wide_tuples.hlo", "hlo_big_reducer.hlo", "hlo_iota_folds.hlo", "mlir_long_chain.mlir", "hlo_many_custom_aliases.hlo",
            "hlo_maps_double.hlo") if SANITIZED and not names else ()
    chosen = [(name, make) for name, make in programs() if (not names or name in names) and name not in slow]
    weft, failed = os.path.join(os.environ["WEFT_BUILDDIR"], "weft"), 0
    print(f"1..{len(chosen)}")
    with tempfile.TemporaryDirectory(prefix="weft-nasty-") as folder:
        for number, (name, make) in enumerate(chosen, 1):
            path, text = os.path.join(folder, name), make()
            assert len(text) < MOST_BYTES, (name, len(text))
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            wrong, took = run(weft, path)
            failed += bool(wrong)
            print(f"{'not ok' if wrong else 'ok'} {number} - {name}: {took}" + (f"\n# {wrong}" if wrong else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
