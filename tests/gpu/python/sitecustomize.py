"""With this folder in PYTHONPATH, JAX takes the emulated GPU for one: it looks for device files of NVIDIA's driver, and there are none."""
import jax._src.hardware_utils

jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
