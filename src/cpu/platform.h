/* cpu/platform.h -- the CPU platform. */
#ifndef WEFT_CPU_PLATFORM_H
#define WEFT_CPU_PLATFORM_H

#include "base/options.h"
#include "runtime/platform.h"

extern const weft_platform_ops cpu_platform_ops;
/* The same without a compiler and without LLVM: programs are loaded (runtime/saved.h), not compiled or saved. */
extern const weft_platform_ops cpu_loader_ops;
/* The settings of the platform and of code generation, from the environment. */
extern const weft_option_table cpu_options, gen_option_table;

#endif
