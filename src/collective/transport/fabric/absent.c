/* collective/transport/fabric/absent.c -- the transport between machines in a build without libfabric: its error says
 * that libfabric is missing. */
#include <config.h>

#include "base/macros.h"
#include "collective/transport/transport.h"

static weft_status *refuse(void)
{
  return WEFT_ERR(UNIMPLEMENTED,
                  "collectives between machines: this build has no libfabric (configure --without-libfabric)");
}

static bool absent_reaches(const coll_address *from, const coll_address *to)
{
  (void)from;
  (void)to;
  return true;
}

static weft_status *absent_open(coll_group *g, coll_address *own)
{
  (void)g;
  (void)own;
  return refuse();
}

static weft_status *absent_stream(const coll_transport_ends *ends, coll_stream **out_stream)
{
  (void)ends;
  *out_stream = NULL;
  return refuse();
}

const coll_transport_ops coll_fabric_transport = {
  .name = "fabric", .reaches = absent_reaches, .open = absent_open, .stream = absent_stream,
};
