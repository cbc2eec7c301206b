#!/usr/bin/env python3
"""Fills a folder for each target of programs: corpus.py WEFT OUT PROGRAM... (WEFT: the command; PROGRAM: files or folders of .mlir, .mlir.bc and .hlo).

Files of several modules are split, and what is longer than MOST bytes is left out: fuzzers want small inputs.  MLIR texts are converted to HLO
text, protos and serialised executables as well.  Names come from the contents, so that what is there twice is written once."""
import hashlib
import pathlib
import re
import tempfile
import subprocess
import sys

MOST = 6000


def write(folder, data, most=MOST):
    if 0 < len(data) <= most:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def convert(weft, program, to):
    return subprocess.run([weft, 'inspect', '-', '--emit', to], input=program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60).stdout


def executable(weft, program, cpus):
    """b'' for a program that cannot be compiled."""
    with tempfile.NamedTemporaryFile(suffix='.weft') as out:
        subprocess.run([weft, 'compile', '-', '--cpu', cpus, '-o', out.name], input=program, stderr=subprocess.DEVNULL, timeout=60)
        return pathlib.Path(out.name).read_bytes()


def bytecode(program):
    """As jaxlib writes it, where there is one; b'' else."""
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo
    except ImportError:
        return b''
    try:
        with ir.Context() as context:
            context.allow_unregistered_dialects = True
            stablehlo.register_dialect(context)
            return stablehlo.serialize_portable_artifact_str(program.decode(), stablehlo.get_current_version())
    except (ValueError, ir.MLIRError):
        return b''


def add_hlo(weft, out, text):
    write(out / 'hlo_text', text)
    write(out / 'hlo_run', text)
    proto = convert(weft, text, 'hlo-proto')
    write(out / 'hlo_proto', proto)
    write(out / 'pjrt_executable', executable(weft, text, 'x86-64'), 4 * MOST)
    write(out / 'program', executable(weft, text, 'x86-64,x86-64-v3'), 4 * MOST)


def add(weft, out, path):
    data = path.read_bytes()
    if data[:4] == b'ML\xefR':
        write(out / 'stablehlo_bytecode', data, 4 * MOST)
        return
    for part in re.split(rb'^// -----.*\n', data, flags=re.M):
        part = re.sub(rb'^//.*\n', b'', part, flags=re.M)
        if len(part) > MOST:
            continue
        if path.suffix == '.hlo':
            add_hlo(weft, out, part)
        else:
            write(out / 'stablehlo_text', part)
            write(out / 'stablehlo_bytecode', bytecode(part))
            add_hlo(weft, out, convert(weft, part, 'hlo'))


def main():
    if len(sys.argv) < 4 or sys.argv[1] in ('-h', '--help'):
        sys.exit(__doc__)
    weft, out = sys.argv[1], pathlib.Path(sys.argv[2])
    for name in sys.argv[3:]:
        path = pathlib.Path(name)
        for file in [path] if path.is_file() else sorted(p for p in path.rglob('*') if p.suffix in ('.mlir', '.bc', '.hlo')):
            add(weft, out, file)


main()
