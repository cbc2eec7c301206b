/* collective/settings.h -- the module's settings, read from the environment once a process. */
#ifndef WEFT_COLLECTIVE_SETTINGS_H
#define WEFT_COLLECTIVE_SETTINGS_H

#include "base/options.h"
#include "weft/collective.h"

typedef struct coll_settings {
  int64_t timeout_ns, warn_ns, connect_ns, spin_ns, diagnose_ns; /* 0: none */
  const char *order, *algorithm, *table, *transport, *interface, *flight_dir, *faults, *node, *integrity;
  int64_t flight_entries, ring_bytes;
  bool dump_on_signal, tls;
} coll_settings;

extern const weft_option_table coll_option_table;

/* The settings.  The first call loads them (thread-safe); a bad value is logged and its default used. */
const coll_settings *coll_settings_get(void);

/* True if messages over libfabric are sealed whole, instead of being authenticated by their first bytes only. */
bool coll_settings_seal_whole(void);

#endif
