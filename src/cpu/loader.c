/* cpu/loader.c -- the CPU platform without a compiler, for libweft_runtime (platform.h). */
#include <config.h>

#include "cpu/cpu_internal.h"
#include "cpu/platform.h"
#include "cpu/topology.h"

static weft_status *create(const weft_platform_options *wanted, weft_platform **out_platform)
{
  return cpu_create(&cpu_loader_ops, wanted, out_platform);
}

const weft_platform_ops cpu_loader_ops = {
  .size = sizeof(weft_platform_ops), .name = "cpu", .client_name = "cpu", .device_kind = CPU_DEVICE_KIND,
  .devices_by_request = true,
  .create = create, .destroy = cpu_destroy, .device = &cpu_device_ops,
  .describe = cpu_topology_print, .load = cpu_load,
};
