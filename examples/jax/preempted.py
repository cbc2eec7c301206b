#!/usr/bin/env python3
"""Training that gets notice of its end (SIGTERM, which a batch system sends before it takes a machine back) and goes on later.

    weft launch -n 2 -- python examples/jax/preempted.py --checkpoint /shared/train.npz      # until somebody sends SIGTERM
    weft launch -n 2 -- python examples/jax/preempted.py --checkpoint /shared/train.npz      # goes on where it was

One process hears the signal; the coordination service makes all of them agree on a last step, after which each has the
same weights and the first one writes them down.  --preempt PROCESS@STEP plays the batch system.
"""
import argparse
import os
import signal
import sys
import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from survivor import FEATURES, Trainer, numpy_losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--checkpoint", required=True, metavar="FILE.npz", help="written by process 0, read by all")
    parser.add_argument("--preempt", default="", metavar="PROCESS@STEP", help="that process sends itself SIGTERM at that step")
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps; the signal is noticed within two")
    args = parser.parse_args()
    victim, at = map(int, args.preempt.split("@")) if args.preempt else (-1, -1)

    jax.distributed.initialize()
    me, step, w = jax.process_index(), 0, np.zeros((FEATURES, 1), np.float32)
    if os.path.exists(args.checkpoint):
        with np.load(args.checkpoint) as saved:
            step, w = int(saved["step"]), saved["w"]
        print(f"goes on at step {step}", flush=True)
    multihost_utils.sync_global_devices("everybody has read the checkpoint")
    trainer, wanted = Trainer(jax.devices()), numpy_losses(args.steps)
    while step < args.steps:
        if me == victim and step == at:
            os.kill(os.getpid(), signal.SIGTERM)
        if multihost_utils.reached_preemption_sync_point(step):
            if me == 0:
                np.savez(args.checkpoint + ".part.npz", step=step, w=w)
                os.replace(args.checkpoint + ".part.npz", args.checkpoint)  # never half a file
            print(f"preempted before step {step}", flush=True)
            return 0
        loss, w = trainer.train(step, w)
        np.testing.assert_allclose(loss, wanted[step], rtol=1e-3, atol=1e-3)
        print(f"step {step}: loss {loss:.4f}", flush=True)
        step += 1
        time.sleep(args.pause)
    print("done: the losses of an undisturbed run", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
