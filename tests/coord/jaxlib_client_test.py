#!/usr/bin/env python3
"""Unmodified jaxlib clients against our service."""
import signal
import sys
import time

from jaxlib_common import Service, all_succeed, finish, free_port, run, spawn, wait_for_line


def four_processes_start_and_leave():
  with Service(4) as s:
    all_succeed([spawn(s.address, t, 'leave') for t in range(4)])
    assert s.stop() == 0


def late_process_is_waited_for():
  with Service(2) as s:
    first = spawn(s.address, 0, 'leave')
    time.sleep(2)
    assert first.poll() is None
    all_succeed([first, spawn(s.address, 1, 'leave', '1')])


def missing_process_fails_the_start():
  with Service(2, '--register-timeout', '2s') as s:
    (code, _, err), = finish([spawn(s.address, 0, 'init=10', 'leave')])
    assert code != 0 and 'DEADLINE_EXCEEDED' in err and 'task 1 (not registered)' in err, err


def key_value_calls():
  with Service(4) as s:
    all_succeed([spawn(s.address, t, 'kv', 4) for t in range(4)])


def key_value_calls_without_compression():
  with Service(2) as s:
    all_succeed([spawn(s.address, t, 'gzip=0', 'kv', 2) for t in range(2)])


def barrier_calls():
  with Service(4) as s:
    all_succeed([spawn(s.address, t, 'barriers', 4) for t in range(4)])


def live_nodes_with_incarnations():
  with Service(3) as s:
    all_succeed([spawn(s.address, t, 'live', 3) for t in range(3)])


def killed_process_ends_the_others():
  with Service(3, '--heartbeat-timeout', '4s') as s:
    peers = [spawn(s.address, t, 'hb=4', 'idle', 30) for t in range(3)]
    for p in peers:
      wait_for_line(p, 'connected')
    peers[1].kill()
    for number, (code, _, err) in enumerate(finish(peers)):
      assert code != 0
      if number != 1:
        assert 'heartbeat timeout' in err and 'task 1' in err, err


def killed_process_fails_the_barrier():
  with Service(2, '--heartbeat-timeout', '4s', '--recoverable', '0') as s:
    waiter = spawn(s.address, 0, 'hb=4', 'barrier', 'b', 30)
    victim = spawn(s.address, 1, 'hb=4', 'idle', 30)
    wait_for_line(victim, 'connected')
    victim.kill()
    (code, _, err), _ = finish([waiter, victim])
    assert code != 0 and 'heartbeat timeout' in err, err


def early_leaver_fails_the_shutdown():
  with Service(2, '--shutdown-timeout', '2s') as s:
    leaver = spawn(s.address, 0, 'leave')
    stayer = spawn(s.address, 1, 'idle', 20)
    (code, _, err), (other, _, err1) = finish([leaver, stayer])
    assert code != 0 and other != 0, (code, other)
    assert 'timed out' in err or 'timed out' in err1, err + err1


def recoverable_job_survives_a_death_and_a_restart():
  with Service(2, '--heartbeat-timeout', '4s', '--recoverable') as s:
    victim = spawn(s.address, 1, 'hb=4', 'idle', 60)
    stayer = spawn(s.address, 0, 'hb=4', 'live_without', 1, 0, 1)
    wait_for_line(victim, 'connected')
    victim.kill()
    all_succeed([stayer])
    victim.communicate()
    all_succeed([spawn(s.address, t, 'hb=4', 'live_with', 0, 1) for t in range(2)])


def restarted_process_joins_the_running_barrier():
  with Service(2, '--heartbeat-timeout', '4s', '--recoverable') as s:
    stayer = spawn(s.address, 0, 'hb=4', 'barrier', 'rejoin', 30)
    victim = spawn(s.address, 1, 'hb=4', 'idle', 60)
    wait_for_line(victim, 'connected')
    victim.kill()
    victim.communicate()
    all_succeed([stayer, spawn(s.address, 1, 'hb=4', 'barrier', 'rejoin', 60)])


def stopped_process_is_lost():
  with Service(2, '--heartbeat-timeout', '4s') as s:
    peers = [spawn(s.address, t, 'hb=4', 'idle', 30) for t in range(2)]
    for p in peers:
      wait_for_line(p, 'connected')
    peers[1].send_signal(signal.SIGSTOP)
    (code, _, err), = finish(peers[:1])
    assert code != 0 and 'task 1' in err, err
    peers[1].send_signal(signal.SIGCONT)
    (code, _, err), = finish(peers[1:])
    assert code != 0, err


def process_restarted_too_early_ends_the_job():
  with Service(2) as s:
    first = spawn(s.address, 0, 'idle', 60)
    victim = spawn(s.address, 1, 'idle', 60)
    for p in (first, victim):
      wait_for_line(p, 'connected')
    victim.kill()
    victim.communicate()
    again = spawn(s.address, 1, 'init=10', 'idle', 5)
    for code, _, err in finish([first, again]):
      assert code != 0 and 'ABORTED' in err, err


def restarted_service_is_noticed():
  at = f'127.0.0.1:{free_port()}' # which nobody takes while the service is away
  with Service(1, '--bind', at, '--heartbeat-timeout', '4s') as s:
    peer = spawn(s.address, 0, 'hb=4', 'idle', 30)
    wait_for_line(peer, 'connected')
    s.stop()
    with Service(1, '--bind', s.address, '--heartbeat-timeout', '4s'):
      (code, _, err), = finish([peer])
      assert code != 0, err


if __name__ == '__main__':
  sys.exit(run([
      four_processes_start_and_leave,
      late_process_is_waited_for,
      missing_process_fails_the_start,
      key_value_calls,
      key_value_calls_without_compression,
      barrier_calls,
      live_nodes_with_incarnations,
      killed_process_ends_the_others,
      killed_process_fails_the_barrier,
      early_leaver_fails_the_shutdown,
      recoverable_job_survives_a_death_and_a_restart,
      restarted_process_joins_the_running_barrier,
      stopped_process_is_lost,
      process_restarted_too_early_ends_the_job,
      restarted_service_is_noticed,
  ]))
