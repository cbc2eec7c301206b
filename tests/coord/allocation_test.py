#!/usr/bin/env python3
"""Jobs that a real launcher starts: mpirun, and srun in a Slurm of one node that this test makes.  No coordinator address is
given: our agents and JAX (with Weft as its backend) read it from the launcher's variables.

What is not installed is skipped; slurm-wlm, munge and openmpi-bin are Debian's packages."""
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import jaxlib_common
from jaxlib_common import HERE, Skip, free_port, weft

BUILD = os.path.abspath(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'))
PATH = os.environ.get('PATH', '') + ':/usr/sbin:/sbin'
PROCESSES = '4'
AGENT = [BUILD + '/tests/coord/agent_peer', 'detect', '-', 'connect', 'barrier,b,60', 'shutdown']
LIMIT_S = 400


def jax_program():
  plugin = os.environ.get('WEFT_PLUGIN') or BUILD + '/.libs/pjrt_weft.so'
  if os.environ.get('WEFT_SANITIZED'):
    raise Skip('Python cannot load a plugin built with a sanitizer')
  if not jaxlib_common.has_jaxlib():
    raise Skip('no jax in this interpreter (set WEFT_PYTHON)')
  return ['env', f'PJRT_NAMES_AND_LIBRARY_PATHS=weft:{plugin}', 'JAX_PLATFORMS=weft', 'WEFT_NUM_DEVICES=2',
          jaxlib_common.python(), HERE + '/weft_program.py', PROCESSES]


def all_is_well(command, env, text):
  """Runs it where no other launcher's variables are; every process prints `text` once."""
  clean = {k: v for k, v in os.environ.items() if not k.startswith(('SLURM_', 'OMPI_', 'PMIX_', 'PMI_', 'WEFT_COORD', 'JAX_COORD'))}
  r = subprocess.run(command, env={**clean, 'PATH': PATH, **env}, capture_output=True, text=True, timeout=LIMIT_S, check=False)
  assert r.returncode == 0 and r.stdout.count(text) == int(PROCESSES), (r.returncode, r.stdout[-2000:], r.stderr[-4000:])


# ---- mpirun ----


def mpirun():
  if not shutil.which('mpirun', path=PATH):
    raise Skip('no mpirun')
  version = subprocess.run(['mpirun', '--version'], capture_output=True, text=True, check=False).stdout
  if 'Open MPI' not in version:
    return ['mpirun', '-n', PROCESSES]
  return ['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', PROCESSES]


def agents_under_mpirun():
  all_is_well(mpirun() + AGENT, {'WEFT_COORD_SECRET_FILE': jaxlib_common.job_secret()}, 'shutdown')


def jax_under_mpirun():
  command = mpirun()
  if 'OMPI_MCA_orte_hnp_uri=' not in subprocess.run(command + ['env'], capture_output=True, text=True, check=False).stdout:
    raise Skip('JAX detects Open MPI up to version 4 only')
  all_is_well(command + jax_program(), {}, 'all is well')


# ---- Slurm ----


class Slurm:
  """munged, slurmctld and slurmd of this machine, in a folder of their own.  A coordinator's port follows from the job's id, so
  ids begin anywhere."""

  def __enter__(self):
    for program in 'munged', 'slurmctld', 'slurmd', 'srun', 'salloc', 'sinfo':
      if not shutil.which(program, path=PATH):
        raise Skip(f'no {program}')
    host = socket.gethostname().split('.')[0]
    try:
      with socket.socket() as probe:
        probe.bind((socket.gethostbyname(host), 0))
    except OSError:
      raise Skip(f'the name of this machine, {host}, is not the name of an address of its own') from None
    self.folder = d = tempfile.mkdtemp(prefix='weft-slurm-')
    self.env = {'SLURM_CONF': d + '/slurm.conf', 'PATH': PATH}
    self.daemons = []
    user = subprocess.run(['id', '-un'], capture_output=True, text=True, check=True).stdout.strip()
    with open(d + '/slurm.conf', 'w') as f:
      f.write(f'''ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
FirstJobId={random.randrange(1, 1 << 20)}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={d}/munge.sock
CryptoType=crypto/munge
StateSaveLocation={d}
SlurmdSpoolDir={d}
SlurmctldPidFile={d}/slurmctld.pid
SlurmdPidFile={d}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
''')
    with open(d + '/munge.key', 'wb') as f:
      f.write(os.urandom(128))
    os.chmod(d + '/munge.key', 0o600)
    self.start('munged', '-F', '--force', f'--key-file={d}/munge.key', f'--socket={d}/munge.sock', f'--pid-file={d}/munge.pid',
               f'--log-file={d}/munge.log', f'--seed-file={d}/munge.seed')
    self.start('slurmctld', '-D')
    self.start('slurmd', '-D', '-N', host)
    deadline = time.time() + 120
    while 'idle' not in subprocess.run(['sinfo', '-h', '-o', '%T'], env={**os.environ, **self.env}, capture_output=True, text=True,
                                       check=False).stdout:
      if time.time() > deadline:
        self.__exit__()
        raise Skip('slurmctld and slurmd do not work here')
      time.sleep(0.3)
    return self

  def start(self, *command):
    with open(f'{self.folder}/{command[0]}.out', 'w') as log:
      self.daemons.append(subprocess.Popen(command, env={**os.environ, **self.env}, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

  def __exit__(self, *_):
    for daemon in reversed(self.daemons):
      daemon.terminate()
      try:
        daemon.wait(timeout=15)
      except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    shutil.rmtree(self.folder, ignore_errors=True)


def under_slurm(command, text):
  """With srun, and with weft launch inside an allocation, which brings its own service and runs srun."""
  with Slurm() as slurm:
    all_is_well(['srun', '-n', PROCESSES] + command, slurm.env, text)
    all_is_well(['salloc', '-n', PROCESSES, weft(), 'launch', '-n', PROCESSES, '--'] + command, slurm.env, text)


def agents_under_slurm():
  under_slurm(AGENT, 'shutdown')


def jax_under_slurm():
  under_slurm(jax_program(), 'all is well')


if __name__ == '__main__':
  sys.exit(jaxlib_common.run([agents_under_mpirun, jax_under_mpirun, agents_under_slurm, jax_under_slurm], needs_jaxlib=False))
