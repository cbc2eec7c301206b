"""Builds the wheel (PEP 517) with nothing but Python, in place, leaving no file behind.

`pip install ./python` makes a wheel of the Python files alone, which finds an installed Weft.  With WEFT_WHEEL_STAGE=DIR, what is below DIR
goes into the package too (`make wheel`: libraries, command, headers), and the wheel has a command `weft`.
"""
import base64
import hashlib
import os
import sysconfig
import tomllib
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes from the same files


def _project():
    with open(os.path.join(HERE, "pyproject.toml"), "rb") as f:
        return tomllib.load(f)["project"]


def _below(folder, prefix):
    """(name in the wheel, path) of every file below a folder."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = os.path.join(root, name)
            yield os.path.join(prefix, os.path.relpath(path, folder)), path


def _sources(stage):
    yield from _below(os.path.join(HERE, "weft"), "weft")
    yield from _below(os.path.join(HERE, "jax_plugins"), "jax_plugins")
    yield "weft.pth", os.path.join(HERE, "weft.pth")
    if stage:
        yield from _below(stage, "weft")


def _metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}", f"Summary: {project['description']}",
             f"Requires-Python: {project['requires-python']}", f"License: {project['license']['text']}"]
    for extra, needs in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"] + [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    return "\n".join(lines) + "\n"


def _entry_points(project, has_command):
    text = "".join(f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
                   for group, entries in project["entry-points"].items())
    return text + ("[console_scripts]\nweft = weft._command:main\n" if has_command else "")


class _Wheel:
    def __init__(self, path, method):
        self.file, self.record, self.method = zipfile.ZipFile(path, "w", method, compresslevel=9), [], method

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, DATE)
        info.external_attr, info.compress_type = (0o100000 | mode) << 16, self.method
        self.file.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self, record_name):
        self.file.writestr(zipfile.ZipInfo(record_name, DATE), "".join(self.record) + f"{record_name},,\n")
        self.file.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    project, stage = _project(), os.environ.get("WEFT_WHEEL_STAGE")
    tag = "py3-none-" + (sysconfig.get_platform().replace("-", "_").replace(".", "_") if stage else "any")
    info = f"{project['name']}-{project['version']}.dist-info"
    name = f"{project['name']}-{project['version']}-{tag}.whl"
    # auditwheel unpacks a wheel with libraries and packs it anew.
    wheel = _Wheel(os.path.join(wheel_directory, name), zipfile.ZIP_STORED if stage else zipfile.ZIP_DEFLATED)
    for target, path in _sources(stage):
        with open(path, "rb") as f:
            wheel.add(target, f.read(), 0o755 if os.access(path, os.X_OK) else 0o644)
    wheel.add(f"{info}/METADATA", _metadata(project).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: {str(not stage).lower()}\nTag: {tag}\n".encode())
    wheel.add(f"{info}/entry_points.txt", _entry_points(project, bool(stage)).encode())
    wheel.close(f"{info}/RECORD")
    return name
