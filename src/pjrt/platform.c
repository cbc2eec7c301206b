/* pjrt/platform.c -- the facts about a client's platform that the client can ask for. */
#include <config.h>

#include <pthread.h>
#include <stdio.h>

#include "pjrt/internal.h"
#include "platform/registry.h"

const weft_platform_ops *pjrt_platform(void)
{
  const weft_platform_ops *ops;
  weft_status *st = plat_default(&ops);

  for (int i = 0; st && i < plat_count(); i++)
    if (!plat_at(i)->available) ops = plat_at(i); /* the platform that every machine has */
  weft_status_ignore(st);
  return ops;
}

static char named_version[256];

static void name_version(void)
{
  snprintf(named_version, sizeof named_version, "%s for %s", pjrt_platform_version, pjrt_platform()->client_name);
}

const char *pjrt_version_of_platform(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  if (!pjrt_platform()->available) return pjrt_platform_version; /* the platform that every machine has */
  pthread_once(&once, name_version);                             /* there is one other platform */
  return named_version;
}

const char *pjrt_memory_kind(int space) { return pjrt_platform()->device->spaces[space].kind; }
