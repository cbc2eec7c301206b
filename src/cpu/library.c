/* Which library kernel does what. */
#include <config.h>

#include "cpu/lower.h"

const cpu_maker cpu_makers[] = {
  {.make = NULL},
};
