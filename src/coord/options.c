/* coord/options.c -- every setting of service and agent: name, unit, default. */
#include <config.h>

#include <weft/coord.h>

/* What the service and its agents must read alike. */
#define HEARTBEAT_TIMEOUT(member)                                 \
  {"WEFT_COORD_HEARTBEAT_TIMEOUT", WEFT_OPT_DURATION, "100s", member, \
   "Silence after which a process counts as dead; agents send at half of it.", "1ns.."}
#define SHUTDOWN_TIMEOUT(member)                                  \
  {"WEFT_COORD_SHUTDOWN_TIMEOUT", WEFT_OPT_DURATION, "5m", member, \
   "Longest wait of the first process for the last one at shutdown; 0: no wait, each leaves alone."}

#define SERVICE(member) offsetof(weft_coord_service_options, member)
static const weft_option service_options[] = {
  {"WEFT_COORD_BIND", WEFT_OPT_STRING, "127.0.0.1:0", SERVICE(address), "Where the service listens, host:port."},
  {"WEFT_COORD_TASKS", WEFT_OPT_INT, "1", SERVICE(task_count), "Number of processes that belong to the job.", "1..16777216"},
  HEARTBEAT_TIMEOUT(SERVICE(heartbeat_timeout_ns)),
  {"WEFT_COORD_REGISTER_TIMEOUT", WEFT_OPT_DURATION, "60m", SERVICE(register_timeout_ns),
   "Longest wait of the first process for the last one at start-up."},
  SHUTDOWN_TIMEOUT(SERVICE(shutdown_timeout_ns)),
  {"WEFT_COORD_RECOVERABLE", WEFT_OPT_BOOL, "0", SERVICE(recoverable),
   "Processes may die and come back without ending the job."},
  {"WEFT_COORD_SECRET_FILE", WEFT_OPT_STRING, "", SERVICE(secret_file),
   "File with the secret that calls carry; jaxlib's clients know none, and are let in by their user id or host."},
  {"WEFT_COORD_TLS_CERT", WEFT_OPT_STRING, "", SERVICE(tls_cert_file), "PEM certificate chain; with it the port speaks TLS."},
  {"WEFT_COORD_TLS_KEY", WEFT_OPT_STRING, "", SERVICE(tls_key_file), "PEM key of the certificate."},
  {"WEFT_COORD_TLS_CA", WEFT_OPT_STRING, "", SERVICE(tls_ca_file), "PEM authorities whose certificates peers must show."},
  {"WEFT_COORD_INSECURE", WEFT_OPT_BOOL, "0", SERVICE(insecure),
   "Listen beyond loopback without a secret and without client certificates."},
  {"WEFT_COORD_ALLOW_UNAUTHENTICATED", WEFT_OPT_BOOL, "0", SERVICE(allow_unauthenticated),
   "Let in clients without the secret from anywhere, jaxlib's for example."},
  {"WEFT_COORD_HOSTS", WEFT_OPT_STRING, "", SERVICE(hosts),
   "Hosts, with commas, from which clients without the secret are let in."},
  {"WEFT_COORD_MAX_KEY", WEFT_OPT_BYTES, "64K", SERVICE(max_key_bytes), "Longest key and barrier id.", "1.."},
  {"WEFT_COORD_MAX_VALUE", WEFT_OPT_BYTES, "512M", SERVICE(max_value_bytes), "Largest value.", "1..2147483647"},
  {"WEFT_COORD_MAX_TASK_KEYS", WEFT_OPT_INT, "4194304", SERVICE(max_task_keys), "Keys that one process keeps; 0: as many as memory.", "0.."},
  {"WEFT_COORD_MAX_TASK_BYTES", WEFT_OPT_BYTES, "4G", SERVICE(max_task_bytes),
   "Keys and values that one process keeps; 0: as many as memory.", "0.."},
  {"WEFT_COORD_MAX_TASK_BARRIERS", WEFT_OPT_INT, "4194304", SERVICE(max_task_barriers),
   "Barrier ids that one process is the first to use; 0: as many as memory.", "0.."},
  {"WEFT_COORD_MAX_TASK_WAITS", WEFT_OPT_INT, "65536", SERVICE(max_task_waits),
   "Calls of one process that wait: for keys, barriers, other processes' states; 0: as many as memory.", "0.."},
  {"WEFT_COORD_MAX_STREAMS", WEFT_OPT_INT, "16384", SERVICE(max_streams), "Concurrent calls of one connection.", "2..2147483647"},
  {"WEFT_COORD_MAX_CONNECTIONS", WEFT_OPT_INT, "65536", SERVICE(max_connections), "Connections at a time.", "1.."},
  {"WEFT_COORD_MAX_UNREAD", WEFT_OPT_BYTES, "1G", SERVICE(max_unread_bytes), "Replies of one connection that its peer has not taken.", "0.."},
  {"WEFT_COORD_MAX_TOTAL", WEFT_OPT_BYTES, "8G", SERVICE(max_total_bytes),
   "Keys, values, requests, waiters and replies on the way, all together.", "1M.."},
};
const weft_option_table weft_coord_service_option_table = {"coord service", service_options, WEFT_COUNT(service_options)};

weft_status *weft_coord_service_options_load(weft_coord_service_options *out_options)
{
  return weft_options_load(&weft_coord_service_option_table, out_options);
}

#define AGENT(member) offsetof(weft_coord_agent_options, member)
static const weft_option agent_options[] = {
  {"WEFT_COORD_ADDRESS", WEFT_OPT_STRING, "", AGENT(address), "Where the service is, host:port."},
  {"WEFT_COORD_TASK", WEFT_OPT_INT, "0", AGENT(task_id), "Which process of the job this is, from 0.", "0..2147483647"},
  HEARTBEAT_TIMEOUT(AGENT(heartbeat_timeout_ns)),
  {"WEFT_COORD_INIT_TIMEOUT", WEFT_OPT_DURATION, "5m", AGENT(init_timeout_ns),
   "Longest wait for the service and the other processes at start-up."},
  SHUTDOWN_TIMEOUT(AGENT(shutdown_timeout_ns)),
  {"WEFT_COORD_POLL_FOR_ERROR", WEFT_OPT_BOOL, "1", AGENT(poll_for_error),
   "Learn of other processes' failures at once, not at the next heartbeat."},
  {"WEFT_COORD_SECRET_FILE", WEFT_OPT_STRING, "", AGENT(secret_file),
   "File with the secret that calls carry; jaxlib's clients know none, and are let in by their user id or host."},
  {"WEFT_COORD_TLS_CERT", WEFT_OPT_STRING, "", AGENT(tls_cert_file), "PEM certificate chain; with it the port speaks TLS."},
  {"WEFT_COORD_TLS_KEY", WEFT_OPT_STRING, "", AGENT(tls_key_file), "PEM key of the certificate."},
  {"WEFT_COORD_TLS_CA", WEFT_OPT_STRING, "", AGENT(tls_ca_file), "PEM authorities whose certificates peers must show."},
  {"WEFT_COORD_MAX_MESSAGE", WEFT_OPT_BYTES, "2G", AGENT(max_message_bytes), "Largest reply that an agent takes.", "1K.."},
};
const weft_option_table weft_coord_agent_option_table = {"coord agent", agent_options, WEFT_COUNT(agent_options)};

weft_status *weft_coord_agent_options_load(weft_coord_agent_options *out_options)
{
  *out_options = (weft_coord_agent_options){.on_error = NULL};
  return weft_options_load(&weft_coord_agent_option_table, out_options);
}
