/* pjrt/platform.c -- what clients are told about the platform that they are made for. */
#include <config.h>

#include "pjrt/internal.h"
#include "platform/registry.h"

const weft_platform_ops *pjrt_platform(void)
{
  const weft_platform_ops *ops;
  weft_status *st = plat_default(&ops);

  for (int i = 0; st && i < plat_count(); i++)
    if (!plat_at(i)->available) ops = plat_at(i); /* one that every machine has */
  weft_status_ignore(st);
  return ops;
}

const char *pjrt_memory_kind(int space) { return pjrt_platform()->device->spaces[space].kind; }
