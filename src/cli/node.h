/* cli/node.h -- the part of `weft launch --hosts` that runs on each host: `weft launch --node`.
 *
 * It gets frames (frames.h) on standard input, starts and signals the processes of this host, and sends frames with
 * their output and their ends on standard output. When standard input ends, it kills what still runs: a launcher that
 * dies, or a connection that breaks, leaves no processes behind. */
#ifndef WEFT_CLI_NODE_H
#define WEFT_CLI_NODE_H

/* The first line that a node writes, before its frames. A launcher and its nodes are of one version. */
#define CLI_NODE_HELLO "weft launch --node " PACKAGE_VERSION

/* The first letters of the strings in a CLI_FRAME_START. */
enum {
  CLI_START_DIRECTORY = 'd', /* where the process runs */
  CLI_START_VARIABLE = 'e',  /* NAME=value of its environment, beside that of the host */
  CLI_START_BIND = 'b',      /* "core INDEX COUNT": to which CPUs it is bound (bind.h) */
  CLI_START_ARGUMENT = 'a',  /* the command and its arguments, in order */
};

int cli_node_main(void);

#endif
