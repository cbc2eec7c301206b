/* platform/registry.h -- the kinds of device that this build has. No other module includes a platform's own headers. */
#ifndef WEFT_PLATFORM_REGISTRY_H
#define WEFT_PLATFORM_REGISTRY_H

#include "base/options.h"
#include "runtime/platform.h"

/* WEFT_PLATFORM, and the settings of each platform of this build. */
extern const weft_option_table plat_options, cpu_options, gen_option_table, gpu_options;
#define PLAT_OPTION_TABLES &plat_options, &cpu_options, &gen_option_table, &gpu_options

int plat_count(void);
const weft_platform_ops *plat_at(int index); /* in order of preference */

/* The platform that WEFT_PLATFORM names; if it is empty, the first one that is available on this machine. Errors:
 * INVALID_ARGUMENT, naming the platforms of this build. */
WEFT_NODISCARD weft_status *plat_default(const weft_platform_ops **out_ops);

/* weft_platform_new with the default platform. */
WEFT_NODISCARD weft_status *plat_new(const weft_platform_options *options, weft_platform **out_platform);

/* Adds a platform before all others, for tests. To be called before any other function here, from one thread. */
void plat_register(const weft_platform_ops *ops);

#endif
