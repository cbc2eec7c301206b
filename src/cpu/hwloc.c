/* cpu/hwloc.c -- the functions of libhwloc that src/cpu calls, each handed on to
 * the library, which is opened at run time.
 *
 * A plugin shares its process with other software, and TensorFlow shows an hwloc of its own to all: if Weft linked its
 * library in the usual way, Weft's calls would go to TensorFlow's hwloc.  These definitions are local to the plugin
 * (its version script says so), so that Weft's calls reach no other library; RTLD_LOCAL keeps libhwloc's names from
 * others, and RTLD_DEEPBIND makes libhwloc's calls of itself stay in libhwloc.  (An archive linked into the plugin
 * would do as well, but distributions build it without position independent code.) */
#include <config.h>

#include <dlfcn.h>
#include <hwloc.h>
#include <pthread.h>

#include "base/log.h"
#include "base/macros.h"

#if HWLOC_API_VERSION < 0x00020000 || HWLOC_API_VERSION >= 0x00030000
#error "the library of this hwloc has another name"
#endif
#if defined WEFT_HAS_ASAN || defined WEFT_HAS_TSAN
#define DEEPBIND 0 /* the runtimes of the sanitizers refuse RTLD_DEEPBIND */
#else
#define DEEPBIND RTLD_DEEPBIND
#endif

static const char library[] = "libhwloc.so.15"; /* of all versions 2.x */

/* result, name, parameters, arguments, the result where there is no library */
#define FUNCTIONS(X) \
  X(int, hwloc_topology_init, (hwloc_topology_t *t), (t), -1) \
  X(int, hwloc_topology_load, (hwloc_topology_t t), (t), -1) \
  X(void, hwloc_topology_destroy, (hwloc_topology_t t), (t), ) \
  X(int, hwloc_get_type_depth, (hwloc_topology_t t, hwloc_obj_type_t type), (t, type), HWLOC_TYPE_DEPTH_UNKNOWN) \
  X(unsigned, hwloc_get_nbobjs_by_depth, (hwloc_topology_t t, int depth), (t, depth), 0) \
  X(hwloc_obj_t, hwloc_get_obj_by_depth, (hwloc_topology_t t, int depth, unsigned i), (t, depth, i), NULL)

static struct {
#define MEMBER(result, name, parameters, arguments, absent) result(*name) parameters;
  FUNCTIONS(MEMBER)
} its;

static void *symbol(void *handle, const char *name)
{
  void *address = dlsym(handle, name);

  if (!address) WEFT_LOG("cpu", ERROR, "%s has no function %s", library, name);
  return address;
}

static void open_library(void)
{
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | DEEPBIND);

  if (!handle) {
    WEFT_LOG("cpu", ERROR, "%s", dlerror());
    return;
  }
#define RESOLVE(result, name, parameters, arguments, absent) *(void **)&its.name = symbol(handle, #name);
  FUNCTIONS(RESOLVE)
}

static void need_library(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, open_library);
}

#define DEFINE(result, name, parameters, arguments, absent) \
  result name parameters \
  { \
    need_library(); \
    if (!its.name) return absent; \
    return its.name arguments; \
  }
FUNCTIONS(DEFINE)
