#!/usr/bin/env python3
"""The list of files in docs/architecture.md, "How to add", is true for opcodes: in a copy of src/hlo, this test adds an
element-wise opcode and one with an attribute by changing those files alone, builds the copy, and sends a program that uses
both through text, HloModuleProto and the evaluator.  Prints TAP."""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.abspath(os.environ.get('WEFT_SRCDIR') or os.path.join(os.path.dirname(__file__), '..', '..'))
BUILD = os.getcwd()

# What is added, by file: (the beginning of the line after which it goes, the text).  "$" is the end of the file.
ELEMENTWISE = {
    'opcodes.def': [('$', 'X(CUBE, "cube", 1, 1, E, INT | FLT, unary, elementwise, none)\n')],
    'eval_elem.c': [('  case HLO_NEGATE: out.u = -a.u; break;\n', '  case HLO_CUBE: out.u = a.u * a.u * a.u; break;\n'),
                    ('  case HLO_NEGATE: return -a;\n', '  case HLO_CUBE: return a * a * a;\n')],
}
WITH_ATTRIBUTE = {
    'opcodes.def': [('$', 'X(SCALE, "scale", 1, 1, E, FLT, unary, elementwise, scale)\n')],
    'hlo.proto': [('message Instruction {\n', '  float factor = 1000;\n')],
    'attributes.def': [('END(copy_start, no_group)', 'FAMILY(scale)\nFIELD(float factor)\nATTR("factor", FLOAT, INSTR(u.factor), REQUIRED, PROTO(factor))\n'
                             'END(scale, no_group)\n')],
    'eval_elem.c': [('  case HLO_REAL: break;\n', '  case HLO_SCALE: x.re *= (double)instr->u.factor; break;\n')],
}
PROGRAM = b"""HloModule added

ENTRY main {
  x = f32[3] constant({1, -2, 3})
  n = s32[2] constant({3, -2})
  cubes = f32[3] cube(x)
  halves = f32[3] scale(cubes), factor=0.5
  whole = s32[2] cube(n)
  ROOT both = (f32[3], s32[2]) tuple(halves, whole)
}
"""
failed = 0
count = 0


def check(condition, what, detail=''):
    global failed, count
    count += 1
    print(f"{'ok' if condition else 'not ok'} {count} - {what}")
    if not condition:
        failed += 1
        for line in str(detail).splitlines()[:30]:
            print(f'# {line}')
    return condition


def add(folder, changes):
    for name, pieces in changes.items():
        path = os.path.join(folder, name)
        text = open(path).read()
        for after, new in pieces:
            places = [m.end() for m in re.finditer(rf'^{re.escape(after.rstrip())}.*\n', text, re.M)]
            assert after == '$' or len(places) == 1, f'{name}: {after!r} begins {len(places)} lines'
            at = len(text) if after == '$' else places[0]
            text = text[:at] + new + text[at:]
        os.chmod(path, 0o644)  # distcheck's sources are read-only
        with open(path, 'w') as out:
            out.write(text)


def variable(name):
    found = re.search(rf'^{name} = *(.*)$', open(os.path.join(BUILD, 'Makefile')).read(), re.M)
    return found.group(1).split() if found else []


def compile_one(copy, path):
    flags = ['-std=gnu11', '-O0', '-w', f'-I{copy}', f'-I{BUILD}', f'-I{SOURCE}/src', f'-I{BUILD}/src', f'-I{SOURCE}/include']
    target = os.path.join(copy, os.path.basename(path) + '.o')
    done = subprocess.run([*variable('CC'), *flags, '-c', path, '-o', target], capture_output=True, text=True, timeout=120)
    return target, done.returncode, done.stderr


def build(copy):
    """The program hlo_convert on the copy; what the copy does not hold comes from the build's library."""
    made = subprocess.run([*(variable('PROTOC_C') or ['protoc-c']), f'--proto_path={copy}/hlo', f'--c_out={copy}/hlo',
                           f'{copy}/hlo/hlo.proto'], capture_output=True, text=True, timeout=60)
    if made.returncode:
        return None, made.stderr
    files = sorted(glob.glob(f'{copy}/hlo/*.c')) + [f'{SOURCE}/tests/hlo/hlo_convert.c']
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda path: compile_one(copy, path), files))
    wrong = ''.join(error for _, code, error in objects if code)
    if wrong:
        return None, wrong
    program = os.path.join(copy, 'hlo_convert')
    linked = subprocess.run([*variable('CC'), '-o', program, *(target for target, _, _ in objects), f'{BUILD}/.libs/libweftcore.a',
                             *variable('PROTOBUF_C_LIBS'), '-lm', '-lpthread'], capture_output=True, text=True, timeout=120)
    return (program, '') if linked.returncode == 0 else (None, linked.stderr)


def convert(program, to, given):
    done = subprocess.run([program, to], input=given, capture_output=True, timeout=60)
    return done.stdout, done.stderr.decode()


def main():
    if not os.path.exists(f'{BUILD}/.libs/libweftcore.a') or not os.path.exists(f'{BUILD}/Makefile'):
        print('1..0 # SKIP run from the top of the build folder: this links with .libs/libweftcore.a')
        return 0
    if os.environ.get('WEFT_SANITIZED') or '-fsanitize' in ' '.join(variable('CFLAGS') + variable('AM_CFLAGS')):
        print('1..0 # SKIP the objects of the build need the run-time library of a sanitizer')
        return 0
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(f'{SOURCE}/src/hlo', f'{copy}/hlo')
        os.chmod(f'{copy}/hlo', 0o755)
        add(f'{copy}/hlo', ELEMENTWISE)
        add(f'{copy}/hlo', WITH_ATTRIBUTE)
        program, error = build(copy)
        if check(program, f'{len(ELEMENTWISE)} files make an element-wise opcode, {len(WITH_ATTRIBUTE)} one with an attribute',
                 error):
            text, error = convert(program, 'text', PROGRAM)
            check(b'scale(cubes), factor=0.5' in text and text.count(b'cube(') == 2, 'text is read and printed', text + error.encode())
            check(convert(program, 'verify', PROGRAM)[1] == '', 'shapes are inferred', convert(program, 'verify', PROGRAM)[1])
            wire, error = convert(program, 'proto', PROGRAM)
            again, more = convert(program, 'text', wire)
            check(b'scale(cubes), factor=0.5' in again and b'cube(x)' in again, 'HloModuleProto is written and read', error + more)
            value, error = convert(program, 'value', PROGRAM)
            check(value == b'({0.5,-4,13.5}, {27,-8})', 'the evaluator knows their meaning',
                  f'{value} {error}')
            error = convert(program, 'text', PROGRAM.replace(b', factor=0.5', b''))[1]
            check('scale needs the attribute "factor"' in error, 'a required attribute that is absent is named', error)
        add(f'{copy}/hlo', {'opcodes.def': [('$', 'X(HALF, "half", 1, 1, E, FLT, no_such_rule, elementwise, none)\n')]})
        check(compile_one(copy, f'{copy}/hlo/infer.c')[1] != 0, 'a row without a rule of inference does not build')
        add(f'{copy}/hlo', {'opcodes.def': [('$', 'X(THIRD, "third", 1, 1, E, FLT)\n')]})
        check(compile_one(copy, f'{copy}/hlo/eval.c')[1] != 0, 'a row without an evaluator does not build')
    print(f'1..{count}')
    return failed != 0


sys.exit(main())
