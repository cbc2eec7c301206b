/* collective/transport/fabric/library.c -- libfabric, loaded when the first fabric is opened.
 *
 * A program linked to libfabric would load it at every start, and some of the libraries that it brings along (PSM's)
 * spin for a fifth of a second in their constructors: more than all else that Weft does before it runs a small
 * program.  This file defines the symbols that fabric.c and libfabric's inline functions call; each forwards to the
 * library. They are hidden, so that libfabric itself keeps using its own. */
#include <config.h>

#include <dlfcn.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>

static struct library {
  __typeof__(fi_getinfo) *getinfo;
  __typeof__(fi_freeinfo) *freeinfo;
  __typeof__(fi_dupinfo) *dupinfo;
  __typeof__(fi_fabric) *fabric;
  __typeof__(fi_version) *version;
  __typeof__(fi_strerror) *strerror;
  bool loaded;
} library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
  /* never closed, because the library's threads may outlive any use */
  void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);

  if (!handle) return;
  library.getinfo = (__typeof__(library.getinfo))dlsym(handle, "fi_getinfo");
  library.freeinfo = (__typeof__(library.freeinfo))dlsym(handle, "fi_freeinfo");
  library.dupinfo = (__typeof__(library.dupinfo))dlsym(handle, "fi_dupinfo");
  library.fabric = (__typeof__(library.fabric))dlsym(handle, "fi_fabric");
  library.version = (__typeof__(library.version))dlsym(handle, "fi_version");
  library.strerror = (__typeof__(library.strerror))dlsym(handle, "fi_strerror");
  library.loaded = library.getinfo && library.freeinfo && library.dupinfo && library.fabric && library.version &&
                   library.strerror;
}

static bool is_loaded(void)
{
  pthread_once(&once, load);
  return library.loaded;
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
               struct fi_info **info)
{
  return is_loaded() ? library.getinfo(version, node, service, flags, hints, info) : -FI_ENOSYS;
}

void fi_freeinfo(struct fi_info *info)
{
  if (info && is_loaded()) library.freeinfo(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info) { return is_loaded() ? library.dupinfo(info) : NULL; }

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
  return is_loaded() ? library.fabric(attr, fabric, context) : -FI_ENOSYS;
}

uint32_t fi_version(void) { return is_loaded() ? library.version() : 0; }

const char *fi_strerror(int code) { return is_loaded() ? library.strerror(code) : "libfabric.so.1 cannot be loaded"; }
