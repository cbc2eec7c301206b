#!/usr/bin/env python3
"""Our agents: in jaxlib's service, beside jaxlib's clients, and in our own service, with the same cases."""
import os
import signal
import subprocess
import sys
import time

import jaxlib_common
from jaxlib_common import Service, all_succeed, finish, free_port, run, spawn, wait_for_line


class JaxlibService:
  """jaxlib's own service in a process."""

  def __init__(self, tasks, *options, later=False):
    seconds = dict(zip(options[::2], options[1::2]))
    values = {'tasks': tasks, 'hb': int(seconds.get('--heartbeat-timeout', '30').rstrip('s')),
              'register': int(seconds.get('--register-timeout', '60').rstrip('s')),
              'stop': int(seconds.get('--shutdown-timeout', '60').rstrip('s')),
              'recoverable': seconds.get('--recoverable', '0') == '1', 'address': seconds.get('--bind')}
    self.process = subprocess.Popen([jaxlib_common.python(), os.path.join(jaxlib_common.HERE, 'jaxlib_service.py'),
                                     repr(values)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert self.process.stdout.readline() == 'loaded\n'  # seconds, on a machine with other work
    if not later:
      self.begin()

  def begin(self):
    self.process.stdin.write('\n')
    self.process.stdin.flush()
    line = self.process.stdout.readline()
    assert line.startswith('listening on '), line
    self.address = line.split()[-1]

  def stop(self):
    self.process.stdin.close()
    return self.process.wait(timeout=20)

  def kill(self):
    if self.process.poll() is None:
      self.process.kill()
    self.process.wait()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.kill()


def agent(address, task, *args):
  program = os.path.join(os.environ.get('WEFT_BUILDDIR', jaxlib_common.HERE + '/../../build'), 'tests/coord/agent_peer')
  return subprocess.Popen([program, address, str(task), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def four_agents_start_and_leave(service):
  with service(4) as s:
    all_succeed([agent(s.address, t, 'connect', 'shutdown') for t in range(4)])


def agents_and_jaxlib_clients_mix(service):
  with service(4) as s:
    all_succeed([agent(s.address, t, 'connect', 'live,4,4', 'live,4,4', 'shutdown') for t in (0, 2)] +
                [spawn(s.address, t, 'live', 4) for t in (1, 3)])


def missing_agent_fails_the_start(service):
  with service(2, '--register-timeout', '2s') as s:
    all_succeed([agent(s.address, 0, 'init=6', 'fails,DEADLINE_EXCEEDED,', 'connect')])


def keys_and_values(service):
  with service(2) as s:
    all_succeed([
        agent(s.address, t, 'connect', f'set,kv//a/{t}/,v{t}', 'get,kv/a/0,30000,v0', 'get,/kv/a/1,30000,v1',
              f'fails,ALREADY_EXISTS,already exists', f'set,kv/a/{t},x', 'barrier,read,30', f'set,kv/a/{t},new,overwrite',
              f'try,kv/a/{t},new', 'fails,NOT_FOUND,Config key none not found', 'try,none',
              'fails,DEADLINE_EXCEEDED,none', 'get,none,100', f'setbig,big/{t}', f'getbig,big/{1 - t}', 'list,kv/a,2',
              'increment,n,5', 'barrier,counted,30', 'try,n,10', 'barrier,tried,30', 'delete,kv', 'list,kv,0', 'shutdown')
        for t in range(2)])


def barriers(service):
  with service(3) as s:
    again = ['barrier,again,30'] * 5
    late = ['fails,DEADLINE_EXCEEDED,Barrier timed out', 'barrier,late,0.5']
    all_succeed([
        agent(s.address, 0, 'connect', *again, 'barrier,two,30,0,1', *late, 'set,late,1', 'barrier,were-late,30',
              'barrier,late,30', 'fails,INVALID_ARGUMENT,', 'barrier,conflict,30,0,1', 'shutdown'),
        agent(s.address, 1, 'connect', *again, 'barrier,two,30,1,0', 'get,late,30000', *late, 'barrier,were-late,30',
              'barrier,late,30', 'fails,INVALID_ARGUMENT,', 'barrier,conflict,30', 'shutdown'),
        agent(s.address, 2, 'connect', *again, 'get,late,30000', *late, 'barrier,were-late,30', 'barrier,late,30',
              'shutdown')])


def killed_agent_ends_the_others(service):
  with service(3, '--heartbeat-timeout', '4s') as s:
    victim = agent(s.address, 1, 'hb=4', 'connect', 'sleep,60')
    ours = agent(s.address, 0, 'hb=4', 'connect', 'fails,INTERNAL,', 'barrier,b,30')
    theirs = spawn(s.address, 2, 'hb=4', 'idle', 30)
    for p, line in (victim, 'connect'), (ours, 'connect'), (theirs, 'connected'):
      wait_for_line(p, line)
    victim.kill()
    (_, _, _), (code, out, _), (their_code, _, err) = finish([victim, ours, theirs])
    assert code == 7 or (code == 0 and 'barrier' in out), (code, out)
    assert their_code != 0 and 'heartbeat' in err, err


def stopped_agent_is_lost(service):
  with service(2, '--heartbeat-timeout', '4s') as s:
    peers = [agent(s.address, t, 'hb=4', 'connect', 'sleep,30') for t in range(2)]
    for p in peers:
      wait_for_line(p, 'connect')
    peers[1].send_signal(signal.SIGSTOP)
    (code, out, _), = finish(peers[:1])
    assert code == 7 and 'UNAVAILABLE' in out, out
    peers[1].send_signal(signal.SIGCONT)
    (code, out, _), = finish(peers[1:])
    assert code == 7, out


def briefly_stopped_agent_is_not(service):
  with service(2, '--heartbeat-timeout', '4s') as s:
    peers = [agent(s.address, t, 'hb=4', 'connect', 'sleep,5', 'barrier,b,30', 'shutdown') for t in range(2)]
    for p in peers:
      wait_for_line(p, 'connect')
    peers[1].send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    peers[1].send_signal(signal.SIGCONT)
    all_succeed(peers)


def early_leaver_fails_the_shutdown(service):
  with service(2, '--shutdown-timeout', '2s') as s:
    all_succeed([agent(s.address, 0, 'connect', 'survive', 'fails,INTERNAL,', 'shutdown'),
                 agent(s.address, 1, 'connect', 'survive', 'sleep,6', 'fails,FAILED_PRECONDITION,in error', 'shutdown')])


def recoverable_agent_restarts(service):
  with service(2, '--heartbeat-timeout', '4s', '--recoverable', '1') as s:
    stayer = agent(s.address, 0, 'hb=4', 'connect', 'waitlive,2,1', 'set,gone,1', 'waitlive,2,2', 'barrier,b,20', 'shutdown')
    victim = agent(s.address, 1, 'hb=4', 'connect', 'live,2,2', 'sleep,60')
    wait_for_line(victim, 'connect')
    victim.kill()
    victim.communicate()
    observer = agent(s.address, 1, 'observe', 'get,gone,20000')
    all_succeed([observer])
    all_succeed([stayer, agent(s.address, 1, 'hb=4', 'connect', 'waitlive,2,2', 'barrier,b,20', 'shutdown')])


def states_are_watched(service):
  with service(2, '--heartbeat-timeout', '4s', '--recoverable', '1') as s:
    watcher = agent(s.address, 0, 'hb=4', 'connect', 'watch,3,3', 'watch,3,4', 'watch,3,3', 'shutdown')
    victim = agent(s.address, 1, 'hb=4', 'connect', 'sleep,60')
    wait_for_line(victim, 'connect')
    wait_for_line(watcher, 'watch')
    victim.kill()
    victim.communicate()
    wait_for_line(watcher, 'watch')
    again = agent(s.address, 1, 'hb=4', 'connect', 'sleep,4')
    all_succeed([watcher, again])


def restarted_service_is_noticed(service):
  at = f'127.0.0.1:{free_port()}' # which nobody takes while the service is away
  options = '--bind', at, '--heartbeat-timeout', '8s'
  with service(1, *options) as s, service(1, *options, later=True) as next_one:
    peer = agent(s.address, 0, 'hb=8', 'connect', 'survive', 'error,60', 'fails,INTERNAL,wrong service incarnation',
                 'set,a,b', 'fails,FAILED_PRECONDITION,in error', 'barrier,b,1')
    wait_for_line(peer, 'connect')
    s.kill()
    next_one.begin()
    all_succeed([peer])


def service_that_goes_away_ends_the_agents(service):
  with service(2, '--heartbeat-timeout', '4s') as s:
    peers = [agent(s.address, t, 'hb=4', 'connect', 'sleep,30') for t in range(2)]
    for p in peers:
      wait_for_line(p, 'connect')
    s.process.kill()
    for code, out, _ in finish(peers):
      assert code == 7, (code, out)


def restarted_agent_ends_the_job(service):
  with service(2) as s:
    victim = agent(s.address, 1, 'connect', 'sleep,60')
    stayer = agent(s.address, 0, 'connect', 'sleep,60')
    for p in (victim, stayer):
      wait_for_line(p, 'connect')
    victim.kill()
    victim.communicate()
    again = agent(s.address, 1, 'init=5', 'fails,ABORTED,', 'connect')
    all_succeed([again])
    (code, out, _), = finish([stayer])
    assert code == 7 and 'ABORTED' in out, out


def preempted_with(service, is_ours_told):
  with service(2) as s:
    ours = agent(s.address, 0, 'connect', 'preempt,stopped-at/0', 'barrier,stopped,10')
    theirs = spawn(s.address, 1, 'preempt', 'stopped-at/1')
    wait_for_line(ours, 'connect')
    wait_for_line(theirs, 'stepping')
    time.sleep(0.5)
    (ours if is_ours_told else theirs).send_signal(signal.SIGTERM)
    all_succeed([ours, theirs])


def all_stop_at_the_step_when_ours_is_told_to_end(service):
  preempted_with(service, True)


def all_stop_at_the_step_when_jaxlibs_is_told_to_end(service):
  preempted_with(service, False)


def case(test, service, name):
  def run_case():
    test(service)
  run_case.__name__ = f'{test.__name__}_with_{name}_service'
  return run_case


if __name__ == '__main__':
  tests = [four_agents_start_and_leave, agents_and_jaxlib_clients_mix, missing_agent_fails_the_start, keys_and_values,
           barriers, killed_agent_ends_the_others, stopped_agent_is_lost, briefly_stopped_agent_is_not,
           early_leaver_fails_the_shutdown, recoverable_agent_restarts, states_are_watched, restarted_service_is_noticed,
           service_that_goes_away_ends_the_agents, restarted_agent_ends_the_job,
           all_stop_at_the_step_when_ours_is_told_to_end, all_stop_at_the_step_when_jaxlibs_is_told_to_end]
  sys.exit(run([case(t, s, n) for t in tests for s, n in ((Service, 'our'), (JaxlibService, 'jaxlibs'))]))
